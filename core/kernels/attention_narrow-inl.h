// Attention of few queries, as in decoding: lanes are the numbers of a key, so that keys and values stream through in
// the format they are stored in, once for four queries.
#if defined(PROMPTCACHED_KERNELS_ATTENTION_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PROMPTCACHED_KERNELS_ATTENTION_NARROW_INL_H_
#undef PROMPTCACHED_KERNELS_ATTENTION_NARROW_INL_H_
#else
#define PROMPTCACHED_KERNELS_ATTENTION_NARROW_INL_H_
#endif

#include "core/kernels/attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

// Some of these functions are kept apart, so that the constants of one do not take another's registers.

using Tag4 = hn::FixedTag<float, 4>;
inline constexpr std::int64_t kFour = 4;  // queries, the unit in which scores are stored
inline constexpr std::int64_t kValueSteps =
    8;  // of looking ahead, for all keys' two vectors of values; one for a pair of keys' scores

// The sum of a vector's 128-bit blocks.
template <class D>
HWY_INLINE hn::Vec<Tag4> sum_of_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == kFour) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sums of four vectors' elements, in order.
HWY_INLINE hn::Vec<Tag4> sums(Vector a, Vector b, Vector c, Vector e) {
  const Tag d;
  const hn::Repartition<double, Tag> pairs;
  // In each 128-bit block: a0+a2 b0+b2 a1+a3 b1+b3.
  const Vector ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const Vector ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const Vector even = hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce)));
  const Vector odd = hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce)));
  const Vector blocks = hn::Add(even, odd);
  return sum_of_blocks(d, blocks);
}

// scores[key] = kQueries queries' products with kKeys consecutive keys; those of queries that are not there are zero.
template <int kQueries, int kKeys, typename T>
HWY_INLINE void score_keys(const float* HWY_RESTRICT q, const T* HWY_RESTRICT k, std::int64_t head_dim,
                           float* HWY_RESTRICT scores) {
  const Tag d;
  const Tag4 d4;
  Vector sum[kKeys][kFour];
  for (int key = 0; key < kKeys; ++key) {
    for (int i = 0; i < kFour; ++i) {
      sum[key][i] = hn::Zero(d);
    }
  }
  for (std::int64_t dim = 0; dim < head_dim; dim += kLanes) {
    Vector x[kKeys];
    for (int key = 0; key < kKeys; ++key) {
      x[key] = load_fp32(d, k + key * head_dim + dim);
    }
    for (int i = 0; i < kQueries; ++i) {
      const Vector query = hn::Load(d, q + i * head_dim + dim);
      for (int key = 0; key < kKeys; ++key) {
        sum[key][i] = hn::MulAdd(query, x[key], sum[key][i]);
      }
    }
  }
  for (int key = 0; key < kKeys; ++key) {
    hn::Store(sums(sum[key][0], sum[key][1], sum[key][2], sum[key][3]), d4, scores + key * kFour);
  }
}

template <int kQueries, typename T>
HWY_NOINLINE void score_chunk(const float* q, const T* k, std::int64_t keys, std::int64_t head_dim, float* scores,
                              Prefetcher* ahead) {
  std::int64_t key = 0;
  for (; key + 2 <= keys; key += 2) {
    ahead->step();
    score_keys<kQueries, 2>(q, k + key * head_dim, head_dim, scores + key * kFour);
  }
  if (key < keys) {
    score_keys<kQueries, 1>(q, k + key * head_dim, head_dim, scores + key * kFour);
  }
}

// Turns scores [keys, 4] into exponentials relative to the largest so far; `kept` is what the results so far are
// multiplied by. The scores have room for sixteen more numbers.
HWY_NOINLINE void exponentiate_narrow(std::int64_t keys, float* HWY_RESTRICT scores, const QueryBlock& queries,
                                      float* HWY_RESTRICT kept) {
  const Tag d;
  const Tag4 d4;
  const auto before = hn::Load(d4, queries.largest);
  auto largest = before;
  for (std::int64_t key = 0; key < keys; ++key) {
    largest = hn::Max(largest, hn::Load(d4, scores + key * kFour));
  }
  hn::Store(largest, d4, queries.largest);
  std::fill_n(scores + keys * kFour, kLanes - kFour, -std::numeric_limits<float>::infinity());
  const Vector all = hn::LoadDup128(d, queries.largest);
  Vector total = hn::Zero(d);
  const std::int64_t whole = keys * kFour / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Vector e = exp2_of(d, hn::Sub(hn::Load(d, scores + i), all));
    hn::Store(e, d, scores + i);
    total = hn::Add(total, e);
  }
  if (whole < keys * kFour) {  // the last keys do not fill a vector
    const Vector e = exp2_of(d, hn::Sub(hn::Load(d, scores + whole), all));
    hn::Store(e, d, scores + whole);
    total = hn::Add(total, hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(keys * kFour - whole)), e));
  }
  HWY_ALIGN float totals[kLanes];
  hn::Store(total, d, totals);
  auto sum = hn::Load(d4, totals);
  for (std::int64_t i = kFour; i < kLanes; i += kFour) {
    sum = hn::Add(sum, hn::Load(d4, totals + i));
  }
  const auto factor = exp2_of(d4, hn::Sub(before, largest));
  hn::Store(hn::MulAdd(hn::Load(d4, queries.total), factor, sum), d4, queries.total);
  hn::Store(factor, d4, kept);
}

// out = out * kept + the weighted values, kVectors vectors of numbers from `dim` on.
template <int kQueries, int kVectors, typename T>
HWY_INLINE void add_values(const float* HWY_RESTRICT weights, const T* HWY_RESTRICT v, std::int64_t keys,
                           std::int64_t head_dim, std::int64_t dim, const float* HWY_RESTRICT kept,
                           float* HWY_RESTRICT out) {
  const Tag d;
  Vector sum[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = hn::Mul(hn::Set(d, kept[i]), hn::Load(d, out + i * head_dim + dim + j * kLanes));
    }
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    Vector value[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      value[j] = load_fp32(d, v + key * head_dim + dim + j * kLanes);
    }
    for (int i = 0; i < kQueries; ++i) {
      const Vector weight = hn::Set(d, weights[key * kFour + i]);
      for (int j = 0; j < kVectors; ++j) {
        sum[i][j] = hn::MulAdd(weight, value[j], sum[i][j]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      hn::Store(sum[i][j], d, out + i * head_dim + dim + j * kLanes);
    }
  }
}

template <int kQueries, typename T>
HWY_NOINLINE void add_chunk(const float* weights, const T* v, std::int64_t keys, std::int64_t head_dim,
                            const float* kept, float* out, Prefetcher* ahead) {
  std::int64_t dim = 0;
  for (; dim + 2 * kLanes <= head_dim; dim += 2 * kLanes) {
    ahead->step(kValueSteps);
    add_values<kQueries, 2>(weights, v, keys, head_dim, dim, kept, out);
  }
  for (; dim < head_dim; dim += kLanes) {
    add_values<kQueries, 1>(weights, v, keys, head_dim, dim, kept, out);
  }
}

// Up to four queries over a block of keys.
template <int kQueries, typename T>
HWY_NOINLINE void add_narrow(const KeyBlock& keys, const AttentionTask& task, const QueryBlock& queries,
                             Prefetcher* ahead) {
  const Visibility seen = visibility(keys, queries, task.rule);
  if (seen == Visibility::kNone) {
    return;
  }
  HWY_ALIGN float scores[kMostBlockKeys * kFour + kLanes];
  std::int64_t key = 0;
  for (const KeyChunk& chunk : keys.parts()) {
    const T* k = static_cast<const T*>(chunk.piece->k) + chunk.first * task.head_dim;
    score_chunk<kQueries>(queries.q, k, chunk.count, task.head_dim, scores + key * kFour, ahead);
    key += chunk.count;
  }
  if (!task.rule.is_plain()) {
    apply_rule(Tag4(), keys, queries, task.rule, scores);
  }
  if (seen == Visibility::kSome) {
    apply_limits(Tag4(), keys, queries, scores);
  }
  HWY_ALIGN float kept[kFour];
  exponentiate_narrow(keys.keys, scores, queries, kept);
  key = 0;
  for (const KeyChunk& chunk : keys.parts()) {
    const T* v = static_cast<const T*>(chunk.piece->v) + chunk.first * task.head_dim;
    add_chunk<kQueries>(scores + key * kFour, v, chunk.count, task.head_dim, kept, queries.out, ahead);
    std::fill_n(kept, kFour, 1.0F);
    key += chunk.count;
  }
}

template <typename T>
HWY_INLINE void add_narrow(const KeyBlock& keys, const AttentionTask& task, const QueryBlock& queries,
                           Prefetcher* ahead) {
  switch (queries.count) {
    case 1:
      return add_narrow<1, T>(keys, task, queries, ahead);
    case 2:
      return add_narrow<2, T>(keys, task, queries, ahead);
    case 3:
      return add_narrow<3, T>(keys, task, queries, ahead);
    default:
      return add_narrow<4, T>(keys, task, queries, ahead);
  }
}

// Queries up to which reading keys straight through beats a vector of queries that is mostly padding.
inline constexpr std::int64_t kMostNarrow = 12;

// A task of at most kMostNarrow queries, whose head's size is a multiple of kLanes.
template <typename T>
HWY_NOINLINE void attend_narrow(const AttentionTask& task, float factor) {
  const std::int64_t count = static_cast<std::int64_t>(task.rows.size()) * task.group;
  Scratch& scratch = Scratch::of_thread();
  scratch.reset();
  std::array<QueryBlock, kMostNarrow / kFour> blocks;
  std::size_t block_count = 0;
  for (std::int64_t first = 0; first < count; first += kFour) {
    QueryBlock& block = blocks[block_count++];
    block = begin_queries(task, first, std::min(kFour, count - first), kFour, &scratch);
    for (std::int64_t i = 0; i < block.count; ++i) {
      const float* from = query_of(task, first + i);
      std::transform(from, from + task.head_dim, block.q + i * task.head_dim, [&](float x) { return x * factor; });
    }
  }
  const std::span<const QueryBlock> all(blocks.data(), block_count);
  KeyBlocks walk(task.pieces, kMostBlockKeys, task.rule.needs_positions());
  KeyBlock keys;
  while (walk.next(&keys)) {
    Prefetcher ahead = walk.prefetcher(
        task.head_dim * static_cast<std::int64_t>(sizeof(T)),
        static_cast<std::int64_t>(block_count) * (kMostBlockKeys / 2 + task.head_dim / (2 * kLanes) * kValueSteps));
    for (const QueryBlock& queries : all) {
      add_narrow<T>(keys, task, queries, &ahead);
    }
  }
  for (const QueryBlock& queries : all) {
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const float inverse = finish_query(task, queries, i);
      const float* from = queries.out + i * task.head_dim;
      std::transform(from, from + task.head_dim, out_of(task, queries.first + i), [&](float x) { return x * inverse; });
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
