// Status and Result: how promptcached says what went wrong.
//
// Everything a *request* can do wrong travels as a value; assertions are for programmer faults and exceptions for the
// loading of configuration and weights only. `ErrorCode` is the one list of failures: it is mapped once to an HTTP
// status (api/error.h), to the `code` field of the error JSON and to metric labels.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace promptcached {

enum class ErrorCode {
  kInvalidJson,
  kInvalidField,
  kUnknownField,
  kInvalidPml,
  kDuplicateName,
  kDuplicateImport,
  kUnionConflict,
  kUnknownSchema,
  kUnknownModule,
  kUnknownParameter,
  kArgumentTooLong,
  kTextDoesNotFit,
  kContextLengthExceeded,
  kEmptyPrompt,
  kNotFound,
  kMethodNotAllowed,
  kConflict,
  kPreconditionFailed,
  kBodyTooLarge,
  kUnsupportedMediaType,
  kUnauthorized,
  kForbidden,
  kQueueFull,
  kNotReady,
  kDraining,
  kTooLargeForCache,
  kStorageFailed,  // what was asked to be kept could not be written
  kTimeout,
  kCancelled,  // the client has gone; logged as 499, never sent
  kInternal,
};

// The snake_case spelling used in error JSON and metric labels, e.g. "unknown_module".
std::string_view to_string(ErrorCode code);

// A place in a PML document: 1-based line and column, both counted in characters (not bytes).
struct SourceLocation {
  int line = 0;
  int column = 0;
  friend bool operator==(const SourceLocation&, const SourceLocation&) = default;
};

// Why something failed. `message` is for the person who sent the request: it names the culprit and says what to do.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;                       // request field at fault ("prompt", "temperature"); empty if none
  std::optional<SourceLocation> location;  // set when the fault has a place in PML
};

inline Error make_error(ErrorCode code, std::string message, std::string param = {}) {
  return Error{code, std::move(message), std::move(param), std::nullopt};
}

inline Error make_error_at(ErrorCode code, SourceLocation location, std::string message) {
  return Error{code, std::move(message), {}, location};
}

// Either a value or an Error. Reading the wrong side is a programmer fault.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error: what a function without a value returns.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace promptcached
