// What a request's answer must look like, made ready for the engine.
#pragma once

#include <memory>
#include <optional>

#include "api/service.h"
#include "core/base/status.h"
#include "core/guide/constraint.h"

namespace promptcached::api {

// Null without a constraint. Errors: kInvalidField, about the constraint's field.
Result<std::shared_ptr<const guide::Grammar>> grammar_of(const Backend& backend,
                                                         const std::optional<guide::Constraint>& constraint);

}  // namespace promptcached::api
