#include "core/model/parallel.h"

#include <ATen/Context.h>

#include <memory>

namespace promptcached::model {
namespace {

std::unique_ptr<ThreadTeam>& the_team() {
  static std::unique_ptr<ThreadTeam> team = std::make_unique<ThreadTeam>(1);
  return team;
}

}  // namespace

ThreadTeam& team() { return *the_team(); }

void set_team_threads(int threads) {
  if (team().threads() != threads) {
    // Denormal numbers are up to a hundred times slower and never matter here.
    the_team() = std::make_unique<ThreadTeam>(threads, [] { at::globalContext().setFlushDenormal(true); });
  }
}

}  // namespace promptcached::model
