// Work for all threads of a step: our own loops run on one team, ATen's on its own threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/thread_team.h"

namespace promptcached::model {

// The process's team.
ThreadTeam& team();
// Before anything computes: how many threads it has.
void set_team_threads(int threads);

// task(0) to task(count - 1), on all threads: each takes the next until none is left, so that one that is held up by
// other programs holds up nobody else.
template <typename Task>
void for_each_task(std::int64_t count, const Task& task) {
  team().run(count, task);
}

// task(begin, end) for runs of at most `step` of the numbers 0 to count - 1.
template <typename Task>
void for_each_run(std::int64_t count, std::int64_t step, const Task& task) {
  for_each_task((count + step - 1) / step, [&](std::int64_t i) { task(i * step, std::min(count, (i + 1) * step)); });
}

// Rows of so many numbers that make a task, where little is done with each number: less is not worth a second thread.
inline std::int64_t rows_per_task(std::int64_t row_numbers) {
  constexpr std::int64_t kNumbers = 16 * 1024;
  return std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, row_numbers));
}

}  // namespace promptcached::model
