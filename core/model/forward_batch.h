// ForwardBatch: one step's work for the model, as plain data. No torch here, so that the engine can be built and tested
// without it.
//
// Rows are new tokens. Each row attends to (a) ranges of KV that already lie in memory, read in place, and (b) the
// rows of its own causal group up to and including itself. Softmax states of all these parts are merged, so that no
// KV is ever copied or concatenated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace promptcached::model {

// An array [layers, 2 (K, V), kv_heads, tokens, head_dim] in the KV dtype: a module's KV or a sequence's block.
struct KvArray {
  std::byte* data = nullptr;
  std::int32_t tokens = 0;

  // Where a token's head_dim numbers lie, counted in such rows from `data`. Heads: those of K, then those of V.
  std::int64_t row(std::int64_t kv_heads, std::int64_t layer, std::int64_t head, std::int64_t token) const {
    return (layer * 2 * kv_heads + head) * tokens + token;
  }
};

// Rows begin ... end - 1 of the batch.
struct RowRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t size() const { return end - begin; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Where keys of a read stand: its token `offset` (0: the read's first) at `position`, those after it at the next ones.
struct PositionRun {
  std::int32_t offset = 0;
  std::int32_t position = 0;
  friend bool operator==(const PositionRun&, const PositionRun&) = default;
};

// Tokens [offset, offset + count) of `kv`, wholly visible to each of `rows`. Rows of several sequences that share a
// module stand in one read: its KV is then read once for all of them (cascade attention).
struct KvRead {
  KvArray kv;
  std::int32_t offset = 0;
  std::int32_t count = 0;
  std::vector<RowRange> rows;          // disjoint, ascending
  std::vector<PositionRun> positions;  // ascending, the first at offset 0; distances are taken from them
};

// Writes the positions of all of a read's keys, in order.
template <typename Number>
void list_positions(const KvRead& read, Number* positions) {
  for (std::size_t i = 0; i < read.positions.size(); ++i) {
    const auto [offset, position] = read.positions[i];
    const std::int32_t end = i + 1 < read.positions.size() ? read.positions[i + 1].offset : read.count;
    std::iota(positions + offset, positions + end, static_cast<Number>(position));
  }
}

// New K and V of `rows` are stored to tokens [offset, offset + rows.size()) of `kv`, before attention reads anything.
struct KvWrite {
  KvArray kv;
  std::int32_t offset = 0;
  RowRange rows;
};

struct ForwardBatch {
  std::vector<std::int32_t> tokens;     // [rows]
  std::vector<std::int32_t> positions;  // [rows]
  std::vector<RowRange> causal_groups;  // partition of the rows, ascending; each group's positions ascend
  std::vector<KvRead> reads;
  std::vector<KvWrite> writes;           // rows that no write names are not stored
  std::vector<std::int32_t> logit_rows;  // rows whose next-token logits are wanted, ascending

  std::int32_t rows() const { return static_cast<std::int32_t>(tokens.size()); }
  // Keeps capacity.
  void clear() {
    tokens.clear();
    positions.clear();
    causal_groups.clear();
    reads.clear();
    writes.clear();
    logit_rows.clear();
  }
};

}  // namespace promptcached::model
