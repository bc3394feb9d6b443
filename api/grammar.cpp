#include "api/grammar.h"

namespace promptcached::api {

Result<std::shared_ptr<const guide::Grammar>> grammar_of(const Backend& backend,
                                                         const std::optional<guide::Constraint>& constraint) {
  if (!constraint) {
    return std::shared_ptr<const guide::Grammar>();
  }
  return backend.engine->grammars().compile(*constraint);
}

}  // namespace promptcached::api
