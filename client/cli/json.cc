#include "client/cli/json.h"

#include <string>
#include <variant>

namespace glyd::cli {
namespace {

std::string Name(absl::string_view name) { return std::string(name); }

// A member that is not there is null, so that every document of a kind has the same keys.
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ToJson(const JobSpec& spec) {
  if (const auto* p = std::get_if<PackJob>(&spec))
    return {{"kind", "pack"},      {"source", p->source},     {"output", p->output},
            {"layout", p->layout}, {"no_merge", p->no_merge}, {"any", p->any},
            {"force", p->force},   {"threads", p->threads}};
  if (const auto* v = std::get_if<VerifyJob>(&spec))
    return {{"kind", "verify"}, {"path", v->path}, {"quick", v->quick}};
  const auto& l = std::get<LoadJob>(spec);
  return {{"kind", "load"},     {"name", l.name}, {"path", l.path},
          {"device", l.device}, {"pin", l.pin},   {"verify", l.verify}};
}

}  // namespace

Json ToJson(absl::Time time) {
  if (time == absl::InfinitePast()) return nullptr;
  return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone());
}

Json ToJson(const ModelInfo& m) {
  Json holders = Json::array();
  for (const LeaseHolder& h : m.holders)
    holders.push_back({{"pid", h.pid},
                       {"uid", h.uid},
                       {"command", h.command},
                       {"since", ToJson(h.since)},
                       {"lease_id", h.lease_id}});
  return {{"name", m.name},
          {"state", Name(ModelStateName(m.state))},
          {"error", OrNull(m.error)},
          {"path", m.path},
          {"device", m.device},
          {"transport", Name(MemoryTransportName(m.transport))},
          {"format", m.format},
          {"layout", m.layout},
          {"packed_bytes", m.packed_bytes},
          {"allocation_bytes", m.allocation_bytes},
          {"bf16_bytes", m.bf16_bytes},
          {"packs", m.packs},
          {"tensors", m.tensors},
          {"pinned", m.pinned},
          {"leases", m.leases},
          {"holders", holders},
          {"loaded_at", ToJson(m.loaded_at)},
          {"last_used_at", ToJson(m.last_used_at)},
          {"load_bytes_done", m.load_bytes_done},
          {"load_bytes_total", m.load_bytes_total},
          {"source_repo", m.source_repo},
          {"source_revision", OrNull(m.source_revision)},
          {"manifest_sha256", m.manifest_sha256},
          {"allocation_id", m.allocation_id},
          {"memory_inode", m.memory_inode}};
}

Json ToJson(const JobInfo& j) {
  Json result = nullptr;
  if (!j.result_json.empty()) {
    result = Json::parse(j.result_json, nullptr, /*allow_exceptions=*/false);
    if (result.is_discarded()) result = j.result_json;
  }
  return {{"id", j.id},
          {"request_id", j.request_id},
          {"spec", ToJson(j.spec)},
          {"state", Name(JobStateName(j.state))},
          {"phase", j.phase},
          {"item", j.item},
          {"bytes_done", j.bytes_done},
          {"bytes_total", j.bytes_total},
          {"bytes_per_second", j.bytes_per_second},
          {"error_reason", OrNull(j.error_reason)},
          {"error", OrNull(j.error)},
          {"result", result},
          {"sequence", j.sequence},
          {"uid", j.uid},
          {"created_at", ToJson(j.created_at)},
          {"started_at", ToJson(j.started_at)},
          {"ended_at", ToJson(j.ended_at)},
          {"notes", j.notes}};
}

Json ToJson(const DaemonInfo& i) {
  Json devices = Json::array();
  for (const DeviceStatus& d : i.devices)
    devices.push_back({{"name", d.name},
                       {"kind", d.kind},
                       {"model", d.model},
                       {"uuid", OrNull(d.uuid)},
                       {"total_bytes", d.total_bytes},
                       {"budget_bytes", d.budget_bytes},
                       {"used_bytes", d.used_bytes},
                       {"transport", Name(MemoryTransportName(d.transport))},
                       {"worker_pid", d.worker_pid},
                       {"worker_restarts", d.worker_restarts},
                       {"error", OrNull(d.error)},
                       {"linear_targets", d.linear_targets}});
  Json roots = Json::array();
  for (const RootInfo& r : i.roots)
    roots.push_back({{"name", r.name}, {"directory", r.directory}, {"writable", r.writable}});
  return {{"version", i.version},       {"pid", i.pid},
          {"generation", i.generation}, {"started_at", ToJson(i.started_at)},
          {"devices", devices},         {"roots", roots},
          {"sessions", i.sessions},     {"leases", i.leases},
          {"draining", i.draining},     {"linear_threads", i.linear_threads}};
}

}  // namespace glyd::cli
