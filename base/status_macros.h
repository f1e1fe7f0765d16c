#ifndef GLYD_BASE_STATUS_MACROS_H_
#define GLYD_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function where it is not OK.
#define GLYD_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                              \
    if (absl::Status glyd_status_ = (expr); ABSL_PREDICT_FALSE(!glyd_status_.ok())) \
      return glyd_status_;                                                          \
  } while (0)

// Evaluates `expr`, a StatusOr; returns its status where it is not OK, else assigns its value to
// `lhs`.
#define GLYD_ASSIGN_OR_RETURN(lhs, expr) \
  GLYD_ASSIGN_OR_RETURN_(GLYD_CONCAT_(glyd_or_, __LINE__), lhs, expr)

#define GLYD_ASSIGN_OR_RETURN_(tmp, lhs, expr)                       \
  auto tmp = (expr);                                                 \
  if (ABSL_PREDICT_FALSE(!tmp.ok())) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

#define GLYD_CONCAT_(a, b) GLYD_CONCAT2_(a, b)
#define GLYD_CONCAT2_(a, b) a##b

#endif  // GLYD_BASE_STATUS_MACROS_H_
