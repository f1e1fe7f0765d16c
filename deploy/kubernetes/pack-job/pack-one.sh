# Packs line JOB_COMPLETION_INDEX (from 0) of a list: directory beneath IN, directory beneath OUT, layout.
set -euf
line=$(sed -n "$((JOB_COMPLETION_INDEX + 1))p" "$LIST")
# shellcheck disable=SC2086 # the words of the line
set -- $line
[ $# -eq 3 ] || { echo "line $((JOB_COMPLETION_INDEX + 1)) of $LIST is \"$line\", not FROM TO LAYOUT" >&2; exit 2; }
# A save is there whole or not at all: one that is there is of an earlier pod of this index.
[ -e "$OUT/$2" ] || glyd pack "$IN/$1" "$OUT/$2" --layout "$3"
exec glyd verify "$OUT/$2"
