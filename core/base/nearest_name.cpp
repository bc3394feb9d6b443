#include "core/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace promptcached {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours, each once (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  // Hostile names may be long; no known name is near to one of more than this.
  constexpr std::size_t kLongestName = 128;
  if (name.size() > kLongestName)
    return {};
  std::string best;
  std::size_t best_distance = std::string_view::npos;
  for (const std::string& candidate : known) {
    const std::size_t longest = std::max(name.size(), candidate.size());
    if (longest > kLongestName)
      continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance <= std::max<std::size_t>(1, longest / 3) && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? std::string{} : " (did you mean '" + nearest + "'?)";
}

}  // namespace promptcached
