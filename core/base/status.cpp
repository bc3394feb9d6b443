#include "core/base/status.h"

namespace promptcached {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidJson:
      return "invalid_json";
    case ErrorCode::kInvalidField:
      return "invalid_field";
    case ErrorCode::kUnknownField:
      return "unknown_field";
    case ErrorCode::kInvalidPml:
      return "invalid_pml";
    case ErrorCode::kDuplicateName:
      return "duplicate_name";
    case ErrorCode::kDuplicateImport:
      return "duplicate_import";
    case ErrorCode::kUnionConflict:
      return "union_conflict";
    case ErrorCode::kUnknownSchema:
      return "unknown_schema";
    case ErrorCode::kUnknownModule:
      return "unknown_module";
    case ErrorCode::kUnknownParameter:
      return "unknown_parameter";
    case ErrorCode::kArgumentTooLong:
      return "argument_too_long";
    case ErrorCode::kTextDoesNotFit:
      return "text_does_not_fit";
    case ErrorCode::kContextLengthExceeded:
      return "context_length_exceeded";
    case ErrorCode::kEmptyPrompt:
      return "empty_prompt";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kMethodNotAllowed:
      return "method_not_allowed";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kPreconditionFailed:
      return "precondition_failed";
    case ErrorCode::kBodyTooLarge:
      return "body_too_large";
    case ErrorCode::kUnsupportedMediaType:
      return "unsupported_media_type";
    case ErrorCode::kUnauthorized:
      return "unauthorized";
    case ErrorCode::kForbidden:
      return "forbidden";
    case ErrorCode::kQueueFull:
      return "queue_full";
    case ErrorCode::kNotReady:
      return "not_ready";
    case ErrorCode::kDraining:
      return "draining";
    case ErrorCode::kTooLargeForCache:
      return "too_large_for_cache";
    case ErrorCode::kStorageFailed:
      return "storage_failed";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace promptcached
