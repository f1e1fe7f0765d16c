#ifndef GLYD_SERVER_RPC_CALL_LOG_H_
#define GLYD_SERVER_RPC_CALL_LOG_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace glyd {

// A log line for every call that ends, and an id by which its caller finds it: the caller's own, of
// the metadata key "glyd-request-id" ([A-Za-z0-9._-]{1,64}), else one made here. It is in the
// reply's trailing metadata under the same key. Calls that went well are told at debug level.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewCallLog();

}  // namespace glyd

#endif  // GLYD_SERVER_RPC_CALL_LOG_H_
