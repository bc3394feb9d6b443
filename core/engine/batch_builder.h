// BatchBuilder: fills a ForwardBatch group by group, and finds out which rows see which KV.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "core/model/forward_batch.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::engine {

// Tokens [offset, offset + count) of `kv`, which stand at positions start, start + 1, …
struct PlacedRange {
  model::KvArray kv;
  std::int32_t offset = 0;
  std::int32_t count = 0;
  std::int32_t start = 0;
  std::int32_t end() const { return start + count; }
};

// A group is the new tokens of one sequence or one encoding: its rows see each other causally, and see of each range
// they are shown the tokens at smaller positions. The same range shown to several groups becomes one read.
class BatchBuilder {
 public:
  explicit BatchBuilder(model::ForwardBatch& batch);

  void begin_group();
  // Appends a row to the open group; positions ascend within it. Its K and V are stored at token `offset` of `kv`.
  void add_row(TokenId token, std::int32_t position, const model::KvArray& kv, std::int32_t offset);
  // Shows ranges to the open group, whose rows must all be there already.
  void show(std::span<const PlacedRange> ranges);
  // The group's last row is one whose next-token logits are wanted; returns its index in the logits.
  std::int32_t want_logits();

  std::int32_t rows() const { return batch_.rows(); }
  std::int32_t group_rows() const { return batch_.rows() - group_begin_; }

 private:
  struct Piece {
    model::KvArray kv;
    std::int32_t offset = 0;
    std::int32_t count = 0;
    std::int32_t start = 0;  // position of its first token
    std::int32_t first_row = 0;
  };
  void split(const PlacedRange& range, std::vector<Piece>& pieces) const;
  void add_read(std::span<const Piece> pieces);

  model::ForwardBatch& batch_;
  std::int32_t group_begin_ = 0;
  std::vector<Piece> pieces_;                                                        // scratch of show()
  std::map<std::tuple<std::byte*, std::int32_t, std::int32_t>, std::size_t> reads_;  // (data, offset, count) -> read
};

}  // namespace promptcached::engine
