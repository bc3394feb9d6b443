#include "api/error.h"

#include <string>

namespace promptcached::api {
namespace {

// OpenAI's names, which clients already know.
std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidJson:
    case ErrorCode::kInvalidField:
    case ErrorCode::kUnknownField:
    case ErrorCode::kInvalidPml:
    case ErrorCode::kDuplicateName:
    case ErrorCode::kDuplicateImport:
    case ErrorCode::kUnionConflict:
    case ErrorCode::kUnknownModule:
    case ErrorCode::kUnknownParameter:
    case ErrorCode::kArgumentTooLong:
    case ErrorCode::kTextDoesNotFit:
    case ErrorCode::kContextLengthExceeded:
    case ErrorCode::kEmptyPrompt:
      return 400;
    case ErrorCode::kUnauthorized:
      return 401;
    case ErrorCode::kForbidden:
      return 403;
    case ErrorCode::kUnknownSchema:
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kMethodNotAllowed:
      return 405;
    case ErrorCode::kConflict:
      return 409;
    case ErrorCode::kPreconditionFailed:
      return 412;
    case ErrorCode::kBodyTooLarge:
      return 413;
    case ErrorCode::kUnsupportedMediaType:
      return 415;
    case ErrorCode::kQueueFull:
      return 429;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kInternal:
      return 500;
    case ErrorCode::kNotReady:
    case ErrorCode::kDraining:
    case ErrorCode::kTimeout:  // the server was too slow for --request-timeout: overloaded
      return 503;
    case ErrorCode::kTooLargeForCache:
    case ErrorCode::kStorageFailed:
      return 507;
  }
  return 500;
}

std::optional<int> retry_after_seconds(ErrorCode code) {
  switch (code) {
    case ErrorCode::kQueueFull:
      return 1;
    case ErrorCode::kNotReady:
    case ErrorCode::kDraining:
    case ErrorCode::kTimeout:
      return 5;
    default:
      return std::nullopt;
  }
}

Json error_document(const Error& error, std::string_view request_id) {
  Json inner;
  inner["code"] = to_string(error.code);
  inner["message"] = error.message;
  inner["type"] = error_type(http_status(error.code));
  if (!error.param.empty()) {
    inner["param"] = error.param;
  }
  if (error.location) {
    inner["line"] = error.location->line;
    inner["column"] = error.location->column;
  }
  inner["request_id"] = request_id;
  Json document;
  document["error"] = std::move(inner);
  return document;
}

HttpResponse error_response(const Error& error, std::string_view request_id) {
  return error_response(http_status(error.code), error, request_id);
}

HttpResponse error_response(int status, const Error& error, std::string_view request_id) {
  HttpResponse response;
  response.status = status;
  response.content_type = "application/json";
  response.body = to_text(error_document(error, request_id));
  if (const auto seconds = retry_after_seconds(error.code)) {
    response.headers.emplace_back("Retry-After", std::to_string(*seconds));
  }
  if (error.code == ErrorCode::kUnauthorized) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return response;
}

}  // namespace promptcached::api
