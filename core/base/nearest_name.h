// "Did you mean": the nearest known name, for error messages about unknown ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace promptcached {

// The name in `known` with the smallest edit distance to `name`; empty when none is near enough to be a typing error
// (more than a third of the longer name, at least 1, differs).
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// " (did you mean 'x'?)" or an empty string: ready to append to a message.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace promptcached
