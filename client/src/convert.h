#ifndef GLYD_CLIENT_SRC_CONVERT_H_
#define GLYD_CLIENT_SRC_CONVERT_H_

#include "glyd/info.h"
#include "glyd/v1/jobs.pb.h"
#include "glyd/v1/models.pb.h"
#include "glyd/v1/server.pb.h"

namespace glyd::internal {

// Messages as the public structs, and back.
ModelInfo FromProto(const v1::Model& model);
PackInfo FromProto(const v1::Pack& pack);
TensorInfo FromProto(const v1::Tensor& tensor);
JobInfo FromProto(const v1::Job& job);
DaemonInfo FromProto(const v1::InfoReply& info);
v1::JobSpec ToProto(const JobSpec& spec);
v1::Transport ToProto(MemoryTransport transport);

}  // namespace glyd::internal

#endif  // GLYD_CLIENT_SRC_CONVERT_H_
