#include "core/model/attention_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/model/aten.h"
#include "core/model/elementwise.h"

namespace promptcached::model {
namespace {

// Scores held at once, in numbers: long queries go through in slices of rows.
constexpr std::int64_t kScores = std::int64_t{16} << 20U;

double scale_of(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

// Scores as the rule has them, from scaled products; in place where that is possible.
at::Tensor ruled(at::Tensor scores,  // [kv_heads, rows, group, tokens]
                 const ScoreRule& rule,
                 const at::Tensor& positions,  // [rows]
                 const at::Tensor& keys)       // [tokens]
{
  if (rule.softcap > 0) {
    soft_cap(rule.softcap, &scores);
  }
  if (!rule.needs_positions()) {
    return scores;
  }
  const at::Tensor distance = positions.unsqueeze(1) - keys.unsqueeze(0);  // [rows, tokens]
  if (rule.slopes.defined()) {
    scores.sub_(rule.slopes.view({scores.size(0), 1, scores.size(2), 1}) *
                distance.to(at::kFloat).view({1, distance.size(0), 1, distance.size(1)}));
  }
  if (rule.window > 0) {
    scores.masked_fill_(distance.ge(rule.window).view({1, distance.size(0), 1, distance.size(1)}),
                        -std::numeric_limits<double>::infinity());
  }
  return scores;
}

// Queries, and the positions they and their keys stand at where the rule needs them.
struct Scored {
  at::Tensor q;          // [kv_heads, rows, group, head_dim]
  at::Tensor k;          // [kv_heads, tokens, head_dim]
  at::Tensor v;          // the same
  at::Tensor positions;  // [rows]
  at::Tensor keys;       // [tokens]
};

AttentionSum attend(const Scored& in, const ScoreRule& rule,
                    const at::Tensor& mask)  // [rows, tokens], true where a row may look; undefined: everywhere
{
  const std::int64_t kv_heads = in.q.size(0);
  const std::int64_t rows = in.q.size(1);
  const std::int64_t group = in.q.size(2);
  const std::int64_t tokens = in.k.size(1);
  const at::Tensor folded = in.q.reshape({kv_heads, rows * group, in.q.size(3)});
  at::Tensor scores = at::bmm(folded, in.k.transpose(1, 2)).to(at::kFloat).mul_(scale_of(in.q));
  scores = ruled(scores.view({kv_heads, rows, group, tokens}), rule, in.positions, in.keys);
  if (mask.defined()) {
    scores.masked_fill_(mask.logical_not().view({1, rows, 1, tokens}), -std::numeric_limits<double>::infinity());
  }
  scores = scores.view({kv_heads, rows * group, tokens});
  const at::Tensor lse = scores.logsumexp(-1, /*keepdim=*/true);
  const at::Tensor weights = scores.sub_(lse).exp_().to(in.v.scalar_type());
  return {at::bmm(weights, in.v).to(at::kFloat).view({kv_heads, rows, group, in.q.size(3)}),
          lse.view({kv_heads, rows, group})};
}

at::Tensor slice_of(const at::Tensor& positions, std::int64_t first, std::int64_t count) {
  return positions.defined() ? positions.narrow(0, first, count) : positions;
}

// Calls visit(first, count) for slices of `rows` rows of queries that keep the scores within bounds.
template <typename Visit>
void for_slices(const at::Tensor& q, std::int64_t rows, std::int64_t tokens, const Visit& visit) {
  const std::int64_t slice = std::max<std::int64_t>(1, kScores / (q.size(0) * q.size(2) * tokens));
  for (std::int64_t first = 0; first < rows; first += slice) {
    visit(first, std::min(slice, rows - first));
  }
}

// Merges two partial results over different keys.
AttentionSum merged(const AttentionSum& a, const AttentionSum& b) {
  const at::Tensor lse = at::logaddexp(a.lse, b.lse);
  const at::Tensor a_weight = (a.lse - lse).exp_().unsqueeze(-1);
  const at::Tensor b_weight = (b.lse - lse).exp_().unsqueeze(-1);
  return {a.out * a_weight + b.out * b_weight, lse};
}

}  // namespace

void begin_self(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) {
  const auto narrow = [&](const at::Tensor& x) { return x.narrow(1, rows.begin, rows.size()); };
  const at::Tensor queries = narrow(states.q).to(at::kFloat);
  const at::Tensor keys = narrow(states.k).unsqueeze(2).to(at::kFloat);  // [kv_heads, rows, 1, head_dim]
  const at::Tensor values = narrow(states.v).unsqueeze(2).to(at::kFloat);
  at::Tensor scores = (queries * keys).sum(-1).mul_(scale_of(states.q));
  if (rule.softcap > 0) {  // at distance 0 nothing else applies
    soft_cap(rule.softcap, &scores);
  }
  narrow(sum->lse).copy_(scores);
  narrow(sum->out).copy_(values.expand_as(queries));
}

void begin_causal(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) {
  for_slices(states.q, rows.size(), rows.size(), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t tokens = first + count;
    const at::Tensor mask = at::ones({count, tokens}, states.q.options().dtype(at::kBool)).tril_(first);
    const AttentionSum slice =
        attend({states.q.narrow(1, rows.begin + first, count),
                states.k.narrow(1, rows.begin, tokens).to(states.q.scalar_type()),
                states.v.narrow(1, rows.begin, tokens).to(states.q.scalar_type()),
                slice_of(states.positions, rows.begin + first, count), slice_of(states.positions, rows.begin, tokens)},
               rule, mask);
    sum->out.narrow(1, rows.begin + first, count).copy_(slice.out);
    sum->lse.narrow(1, rows.begin + first, count).copy_(slice.lse);
  });
}

void add_read(const NewStates& states, const StoredKeys& read, const ScoreRule& rule, AttentionSum* sum) {
  const at::Tensor& q = states.q;
  const at::Tensor keys = read.k.to(q.scalar_type());
  const at::Tensor values = read.v.to(q.scalar_type());
  const RowList& rows = *read.rows;
  for_slices(q, static_cast<std::int64_t>(rows.rows.size()), keys.size(1), [&](std::int64_t first, std::int64_t count) {
    const at::Tensor index = rows.index.defined() ? rows.index.narrow(0, first, count) : at::Tensor();
    const auto pick = [&](const at::Tensor& all, std::int64_t dimension) {
      return index.defined() ? all.index_select(dimension, index)
                             : all.narrow(dimension, rows.rows.front() + first, count);
    };
    const auto put = [&](const at::Tensor& all, const at::Tensor& some) {
      if (index.defined()) {
        all.index_copy_(1, index, some);
      } else {
        all.narrow(1, rows.rows.front() + first, count).copy_(some);
      }
    };
    const at::Tensor positions = rule.needs_positions() ? pick(states.positions, 0) : at::Tensor();
    const AttentionSum part = attend({pick(q, 1), keys, values, positions, read.positions}, rule, {});
    const AttentionSum total = merged({pick(sum->out, 1), pick(sum->lse, 1)}, part);
    put(sum->out, total.out);
    put(sum->lse, total.lse);
  });
}

}  // namespace promptcached::model
