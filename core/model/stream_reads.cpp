#include "core/model/stream_reads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/model/aten.h"
#include "core/model/merge_row.h"

namespace promptcached::model {
namespace {

// Keys of one task: fixed, so that the result does not depend on the number of threads.
constexpr std::int64_t kTaskKeys = 512;
// Products of queries and keys below which a second thread costs more than it saves.
constexpr std::int64_t kSerialScores = 2048;

// Some keys of one read and one KV head.
struct Task {
  const StoredKeys* read;
  std::int64_t head;
  KeyRun keys;
  std::int64_t queries;  // rows times group
  float* q;              // [padded queries, head_dim]
  float* out;            // the same
  float* lse;            // [padded queries]
};

std::int64_t padded(std::int64_t queries) { return (queries + kQueryBlock - 1) / kQueryBlock * kQueryBlock; }

KvFormat format_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return KvFormat::kFp16;
    case at::kBFloat16:
      return KvFormat::kBf16;
    default:
      return KvFormat::kFp32;
  }
}

// The tasks of all reads in order, without memory yet.
std::vector<Task> plan(std::span<const StoredKeys> reads, std::int64_t group) {
  std::vector<Task> tasks;
  for (const StoredKeys& read : reads) {
    const std::int64_t tokens = read.k.size(1);
    const std::int64_t row_bytes = read.k.size(2) * static_cast<std::int64_t>(read.k.element_size());
    const std::int64_t head_bytes = read.k.stride(0) * static_cast<std::int64_t>(read.k.element_size());
    const auto* k = static_cast<const std::byte*>(read.k.const_data_ptr());
    const auto* v = static_cast<const std::byte*>(read.v.const_data_ptr());
    for (std::int64_t head = 0; head < read.k.size(0); ++head) {
      for (std::int64_t first = 0; first < tokens; first += kTaskKeys) {
        const std::int64_t offset = head * head_bytes + first * row_bytes;
        tasks.push_back({&read,
                         head,
                         {k + offset, v + offset, std::min(kTaskKeys, tokens - first), format_of(read.k)},
                         static_cast<std::int64_t>(read.rows->rows.size()) * group,
                         nullptr,
                         nullptr,
                         nullptr});
      }
    }
  }
  return tasks;
}

// Gives each task its part of `memory`, which grows when it has to.
void allot(std::vector<Task>* tasks, std::int64_t head_dim, std::vector<float>* memory) {
  std::int64_t floats = 0;
  for (const Task& task : *tasks) {
    floats += padded(task.queries) * (2 * head_dim + 1);
  }
  if (memory->size() < static_cast<std::size_t>(floats)) {
    memory->resize(static_cast<std::size_t>(floats));
  }
  float* next = memory->data();
  for (Task& task : *tasks) {
    const std::int64_t queries = padded(task.queries);
    task.q = next;
    task.out = task.q + queries * head_dim;
    task.lse = task.out + queries * head_dim;
    next = task.lse + queries;
  }
}

// The queries of a task's rows, scaled, and repeated to fill the last block.
void gather_queries(const Task& task, const at::Tensor& q) {
  const std::int64_t all_rows = q.size(1);
  const std::int64_t group = q.size(2);
  const std::int64_t head_dim = q.size(3);
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const float* source = q.const_data_ptr<float>() + task.head * all_rows * group * head_dim;
  for (std::int64_t i = 0; i < padded(task.queries); ++i) {
    const std::int64_t query = std::min(i, task.queries - 1);
    const auto row = static_cast<std::size_t>(query / group);
    const float* from = source + (task.read->rows->rows[row] * group + query % group) * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      task.q[i * head_dim + d] = from[d] * scale;
    }
  }
}

void merge_task(const Task& task, const at::Tensor& q, AttentionSum* sum) {
  const std::int64_t group = q.size(2);
  const std::int64_t head_dim = q.size(3);
  float* out = sum->out.mutable_data_ptr<float>();
  float* lse = sum->lse.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < task.queries; ++i) {
    const auto row = static_cast<std::size_t>(i / group);
    const std::int64_t query = (task.head * q.size(1) + task.read->rows->rows[row]) * group + i % group;
    merge_row(task.out + i * head_dim, task.lse[i], head_dim, out + query * head_dim, lse + query);
  }
}

}  // namespace

void stream_reads(const at::Tensor& q, std::span<const StoredKeys> reads, AttentionSum* sum) {
  const std::int64_t head_dim = q.size(3);
  std::vector<Task> tasks = plan(reads, q.size(2));
  static thread_local std::vector<float> memory;  // kept from layer to layer and step to step
  allot(&tasks, head_dim, &memory);
  std::int64_t scores = 0;
  for (const Task& task : tasks) {
    scores += task.keys.tokens * task.queries;
  }
  // Each thread takes the next task until none is left: their costs differ.
  std::atomic<std::size_t> next{0};
  const std::int64_t threads = scores < kSerialScores ? 1 : at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) {
      const Task& task = tasks[i];
      gather_queries(task, q);
      stream_attention(task.keys, head_dim, padded(task.queries), task.q, task.out, task.lse);
    }
  });
  for (const Task& task : tasks) {  // in order, so that the result is always the same
    merge_task(task, q, sum);
  }
}

}  // namespace promptcached::model
