#include "core/model/batch_check.h"

#include <stdexcept>
#include <string>

namespace promptcached::model {
namespace {

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::invalid_argument(std::string("ForwardBatch: ") + what);
  }
}

void check_tokens(const ForwardBatch& batch, const ModelInfo& info) {
  require(batch.rows() > 0, "no rows");
  require(batch.positions.size() == batch.tokens.size(), "as many positions as tokens are needed");
  for (const std::int32_t token : batch.tokens) {
    require(token >= 0 && token < info.vocab_size, "a token is outside the vocabulary");
  }
  for (const std::int32_t position : batch.positions) {
    require(position >= 0 && position < info.max_positions, "a position is outside the model's range");
  }
}

void check_groups(const ForwardBatch& batch) {
  std::int32_t row = 0;
  for (const RowRange& group : batch.causal_groups) {
    require(group.begin == row && group.size() > 0, "the causal groups do not partition the rows");
    row = group.end;
  }
  require(row == batch.rows(), "the causal groups do not partition the rows");
}

void check_range(const KvArray& kv, std::int32_t offset, std::int32_t count) {
  require(offset >= 0 && count >= 0 && offset <= kv.tokens && count <= kv.tokens - offset,
          "a range lies outside its KV array");
  require(count == 0 || kv.data != nullptr, "a KV array has no memory");
}

void check_key_positions(const KvRead& read, const ModelInfo& info) {
  require(read.count == 0 || (!read.positions.empty() && read.positions.front().offset == 0),
          "a read does not say where its keys stand");
  std::int32_t next = 0;  // least position the next run may have
  for (std::size_t i = 0; i < read.positions.size(); ++i) {
    const PositionRun& run = read.positions[i];
    const std::int32_t end = i + 1 < read.positions.size() ? read.positions[i + 1].offset : read.count;
    require(run.position >= next && run.offset < end && run.position + (end - run.offset) <= info.max_positions,
            "a read's key positions are out of order or range");
    next = run.position + (end - run.offset);
  }
}

}  // namespace

void check_batch(const ForwardBatch& batch, const ModelInfo& info) {
  check_tokens(batch, info);
  check_groups(batch);
  for (const KvRead& read : batch.reads) {
    check_range(read.kv, read.offset, read.count);
    check_key_positions(read, info);
    std::int32_t end = 0;
    for (const RowRange& rows : read.rows) {
      require(rows.begin >= end && rows.size() >= 0 && rows.end <= batch.rows(), "a read's rows are out of order");
      end = rows.end;
    }
  }
  for (const KvWrite& write : batch.writes) {
    require(write.rows.begin >= 0 && write.rows.size() >= 0 && write.rows.end <= batch.rows(),
            "a write's rows are outside the batch");
    check_range(write.kv, write.offset, write.rows.size());
  }
  std::int32_t previous = -1;
  for (const std::int32_t row : batch.logit_rows) {
    require(row > previous && row < batch.rows(), "the logit rows are not ascending rows of the batch");
    previous = row;
  }
}

}  // namespace promptcached::model
