# Packs line JOB_COMPLETION_INDEX (from 0) of a list: directory beneath IN, directory beneath OUT, layout.
set -eu
line=$(sed -n "$((JOB_COMPLETION_INDEX + 1))p" "$LIST")
[ -n "$line" ] || { echo "$LIST has no line $((JOB_COMPLETION_INDEX + 1)): completions is larger than the list" >&2; exit 2; }
read -r from to layout <<END
$line
END
# A save is there whole or not at all, so what is there was packed by an earlier pod of this index.
if [ -e "$OUT/$to" ]; then
  exec glyd verify "$OUT/$to" --quick
fi
glyd pack "$IN/$from" "$OUT/$to" --layout "$layout"
exec glyd verify "$OUT/$to"
