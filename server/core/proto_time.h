#ifndef GLYD_SERVER_CORE_PROTO_TIME_H_
#define GLYD_SERVER_CORE_PROTO_TIME_H_

#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace glyd {

inline google::protobuf::Timestamp ToProto(absl::Time t) {
  google::protobuf::Timestamp out;
  const int64_t ns = absl::ToUnixNanos(t);
  out.set_seconds(ns / 1000000000);
  out.set_nanos(static_cast<int32_t>(ns % 1000000000));
  return out;
}

}  // namespace glyd

#endif  // GLYD_SERVER_CORE_PROTO_TIME_H_
