#ifndef GLYD_BASE_REASONS_H_
#define GLYD_BASE_REASONS_H_

namespace glyd {

// Every reason (base/reason.h) that a failed call or job can have: the one place where they are
// told. docs/errors.md (tools/errors_doc) and `glyd explain` are made from it, and a test holds it
// against what the sources give. By name; a reason keeps its meaning from version to version.
struct ReasonRow {
  const char* name;
  const char* code;  // the gRPC code that it comes with
  const char* text;  // what happened, and what to do
};

inline constexpr ReasonRow kReasons[] = {
    {"BAD_HASH", "DATA_LOSS",
     "a load with `verify` found a tensor whose sha256 is not glyd.json's: the file is damaged"},
    {"BAD_JOB", "INVALID_ARGUMENT",
     "the job's specification lacks something or names what is not there"},
    {"BAD_LINEAR", "INVALID_ARGUMENT",
     "sizes or places of a product do not fit; the text has the numbers"},
    {"BAD_NAME", "INVALID_ARGUMENT",
     "a model's name is not `[A-Za-z0-9._-]{1,128}`, or starts with a dot"},
    {"BAD_PACK", "DATA_LOSS",
     "a pack in the save is damaged; the text names the pack and the buffer"},
    {"BAD_PAGE", "INVALID_ARGUMENT",
     "a page size over the limit, or a page token that was not given"},
    {"BAD_PATH", "INVALID_ARGUMENT", "the path is not ROOT/relative, or has `..` in it"},
    {"BAD_SIZE", "INVALID_ARGUMENT", "an arena of a size that is not possible"},
    {"CANCELLED", "CANCELLED", "the job was cancelled"},
    {"CONNECTION_LOST", "UNAVAILABLE", "the daemon went during the call: connect and attach again"},
    {"DEVICE_DOWN", "UNAVAILABLE", "the device's worker does not start; `glyd info` says why"},
    {"DRAINING", "FAILED_PRECONDITION", "the model is being unloaded and gives no new lease"},
    {"INTERRUPTED", "ABORTED",
     "the daemon ended while the job ran: submit it again under another request id"},
    {"IN_USE", "FAILED_PRECONDITION",
     "leases are out; the text names their holders. End them, or unload with drain"},
    {"JOURNAL", "as the disk's error",
     "the job could not be written to the journal, and is not taken; the text says why"},
    {"LOADING", "UNAVAILABLE", "the model is not READY yet: wait"},
    {"LOAD_FAILED", "FAILED_PRECONDITION",
     "the model did not load; its `error` says why. Unload it and load again"},
    {"NAME_TAKEN", "ALREADY_EXISTS", "another model has the name"},
    {"NOT_ALLOWED", "PERMISSION_DENIED",
     "this user may not connect; the operator allows it with `--allow-uid`"},
    {"NO_ARENA", "NOT_FOUND", "the session has no arena of that id"},
    {"NO_BIAS", "FAILED_PRECONDITION", "a product asked for a bias that the save does not hold"},
    {"NO_DAEMON", "UNAVAILABLE", "nobody answers at the address: start glydd, or name its socket"},
    {"NO_DEVICE", "NOT_FOUND", "there is no device of that name; the text lists those there are"},
    {"NO_JOB", "NOT_FOUND", "there is no job of that id"},
    {"NO_LEASE", "NOT_FOUND", "the session has no such lease: another's, or released before"},
    {"NO_MEMORY", "RESOURCE_EXHAUSTED",
     "memory for a tensor could not be had; the text names it and the bytes"},
    {"NO_MODEL", "NOT_FOUND", "no model has the name"},
    {"NO_PACK", "NOT_FOUND", "the model has no pack of that name"},
    {"NO_ROOM", "RESOURCE_EXHAUSTED",
     "the device's budget does not hold it; the text has bytes asked, free and the limit"},
    {"NO_SESSION", "UNAUTHENTICATED",
     "the call needs a session, or its session has ended: connect to the broker"},
    {"OTHER_GENERATION", "FAILED_PRECONDITION",
     "the lease is from before the daemon's restart: attach again"},
    {"OTHER_MODEL", "FAILED_PRECONDITION",
     "the lease could not be renewed after the daemon's restart: another model has the name now. "
     "Attach again"},
    {"PROTOCOL", "INVALID_ARGUMENT",
     "client and daemon speak different versions of the broker's protocol"},
    {"QUARANTINED", "a FAILED job's", "its entry in the journal was damaged and is put aside"},
    {"QUEUE_FULL", "RESOURCE_EXHAUSTED",
     "as many jobs wait as may: submit later, with the same request id"},
    {"READ_ONLY_ROOT", "PERMISSION_DENIED", "a job would write to a root that is not writable"},
    {"ROLE", "PERMISSION_DENIED",
     "the remote caller's certificate has no role that allows the call: docs/operating.md"},
    {"STOPPING", "UNAVAILABLE", "the daemon is stopping"},
    {"TOO_MANY_ARENAS", "RESOURCE_EXHAUSTED", "the session has as many arenas as it may"},
    {"TOO_MANY_LEASES", "RESOURCE_EXHAUSTED",
     "the session has as many leases as it may (1024): release some"},
    {"TOO_MANY_SESSIONS", "RESOURCE_EXHAUSTED", "as many sessions as `--max-clients` allows"},
    {"TRANSPORT", "FAILED_PRECONDITION",
     "the device does not share memory in the way that was asked for"},
    {"UNIMPLEMENTED", "UNIMPLEMENTED", "this release does not do it"},
    {"UNKNOWN_ROOT", "NOT_FOUND",
     "the daemon has no root of that name; the text lists those it has"},
    {"WORKER_LOST", "UNAVAILABLE",
     "the worker died during the call. It is started again: try again"},
};

}  // namespace glyd

#endif  // GLYD_BASE_REASONS_H_
