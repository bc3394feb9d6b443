// Attention of many queries: lanes are queries, so that neither keys nor values are turned round and the softmax needs
// no sums across lanes. Up to three vectors of queries by a few keys (or a few dimensions) stay in registers.
#if defined(PROMPTCACHED_KERNELS_ATTENTION_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PROMPTCACHED_KERNELS_ATTENTION_WIDE_INL_H_
#undef PROMPTCACHED_KERNELS_ATTENTION_WIDE_INL_H_
#else
#define PROMPTCACHED_KERNELS_ATTENTION_WIDE_INL_H_
#endif

#include "core/kernels/attention_softmax-inl.h"

// The innermost loops four times over: their ends, which are hard to foresee, come often.
#undef PROMPTCACHED_UNROLL
#if HWY_COMPILER_CLANG
#define PROMPTCACHED_UNROLL _Pragma("clang loop unroll_count(4)")
#elif HWY_COMPILER_GCC
#define PROMPTCACHED_UNROLL _Pragma("GCC unroll 4")
#else
#define PROMPTCACHED_UNROLL
#endif

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

inline constexpr std::int64_t kMostVectors = 3;
inline constexpr std::int64_t kWidest = kMostVectors * kLanes;

// Keys, or dimensions of values, by so many vectors of queries: twelve or eight sums, which hide the latency of
// multiply-adds and leave registers for their operands.
template <int kVectors>
inline constexpr int kTile = kVectors == 3   ? 4
                             : kVectors == 2 ? 6
                                             : 8;

inline constexpr std::int64_t kMostTile = 8;

// sum[i] += the lanes' products with number i, for each of `steps` vectors of lanes. Number i of a step lies
// i * stride behind its first.
template <int kVectors, int kNumbers>
HWY_INLINE void add_products(const float* HWY_RESTRICT lanes, const float* HWY_RESTRICT numbers, std::int64_t steps,
                             std::int64_t step_stride, std::int64_t stride, Vector (&sum)[kNumbers][kVectors]) {
  const Tag d;
  PROMPTCACHED_UNROLL
  for (std::int64_t step = 0; step < steps; ++step) {
    Vector lane[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      lane[v] = hn::Load(d, lanes + (step * kVectors + v) * kLanes);
    }
    for (int i = 0; i < kNumbers; ++i) {
      const Vector x = hn::Set(d, numbers[step * step_stride + i * stride]);
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = hn::MulAdd(x, lane[v], sum[i][v]);
      }
    }
  }
}

// scores[key] = the queries' products with the key, for kKeys keys.
template <int kVectors, int kKeys>
HWY_INLINE void score_tile(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, std::int64_t head_dim,
                           float* HWY_RESTRICT scores) {
  const Tag d;
  Vector sum[kKeys][kVectors];
  for (int key = 0; key < kKeys; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      sum[key][v] = hn::Zero(d);
    }
  }
  add_products(q, k, head_dim, 1, head_dim, sum);
  for (int key = 0; key < kKeys; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sum[key][v], d, scores + (key * kVectors + v) * kLanes);
    }
  }
}

// out[i] = out[i] * kept + the values' numbers i weighted by the keys' exponentials, for kDims numbers.
template <int kVectors, int kDims>
HWY_INLINE void value_tile(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT v, std::int64_t keys,
                           std::int64_t head_dim, const float* HWY_RESTRICT kept, float* HWY_RESTRICT out) {
  const Tag d;
  Vector sum[kDims][kVectors];
  for (int i = 0; i < kDims; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = hn::Mul(hn::Load(d, out + (i * kVectors + j) * kLanes), hn::Load(d, kept + j * kLanes));
    }
  }
  add_products(weights, v, keys, head_dim, 1, sum);
  for (int i = 0; i < kDims; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      hn::Store(sum[i][j], d, out + (i * kVectors + j) * kLanes);
    }
  }
}

// Turns scores into exponentials relative to the largest so far; `kept` is what the results so far are multiplied by.
template <int kVectors>
HWY_INLINE void exponentiate_wide(std::int64_t keys, float* HWY_RESTRICT scores, const QueryBlock& queries,
                                  float* HWY_RESTRICT kept) {
  const Tag d;
  Vector before[kVectors];
  Vector largest[kVectors];
  Vector total[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    largest[v] = before[v] = hn::Load(d, queries.largest + v * kLanes);
    total[v] = hn::Zero(d);
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = hn::Max(largest[v], hn::Load(d, scores + (key * kVectors + v) * kLanes));
    }
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      float* at = scores + (key * kVectors + v) * kLanes;
      const Vector e = exp2_of(d, hn::Sub(hn::Load(d, at), largest[v]));
      hn::Store(e, d, at);
      total[v] = hn::Add(total[v], e);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const Vector factor = exp2_of(d, hn::Sub(before[v], largest[v]));
    hn::Store(factor, d, kept + v * kLanes);
    hn::Store(largest[v], d, queries.largest + v * kLanes);
    hn::Store(hn::MulAdd(hn::Load(d, queries.total + v * kLanes), factor, total[v]), d, queries.total + v * kLanes);
  }
}

// A block of queries over a block of keys, whose numbers lie at k and v in fp32.
template <int kVectors>
HWY_NOINLINE void add_wide(const KeyBlock& keys, const float* k, const float* v, std::int64_t head_dim,
                           const AttentionRule& rule, const QueryBlock& queries, float* scores, Prefetcher* ahead) {
  const Visibility seen = visibility(keys, queries, rule);
  if (seen == Visibility::kNone) {
    return;
  }
  constexpr int kStep = kTile<kVectors>;
  constexpr std::int64_t kWidth = kVectors * kLanes;
  std::int64_t key = 0;
  for (; key + kStep <= keys.keys; key += kStep) {
    ahead->step();
    score_tile<kVectors, kStep>(queries.q, k + key * head_dim, head_dim, scores + key * kWidth);
  }
  for (; key < keys.keys; ++key) {
    score_tile<kVectors, 1>(queries.q, k + key * head_dim, head_dim, scores + key * kWidth);
  }
  if (!rule.is_plain()) {
    apply_rule(Tag(), keys, queries, rule, scores);
  }
  if (seen == Visibility::kSome) {
    apply_limits(Tag(), keys, queries, scores);
  }
  HWY_ALIGN float kept[kWidth];
  exponentiate_wide<kVectors>(keys.keys, scores, queries, kept);
  std::int64_t i = 0;
  for (; i + kStep <= head_dim; i += kStep) {
    ahead->step();
    value_tile<kVectors, kStep>(scores, v + i, keys.keys, head_dim, kept, queries.out + i * kWidth);
  }
  for (; i < head_dim; ++i) {
    value_tile<kVectors, 1>(scores, v + i, keys.keys, head_dim, kept, queries.out + i * kWidth);
  }
}

HWY_INLINE void add_wide(const KeyBlock& keys, const float* k, const float* v, const AttentionTask& task,
                         const QueryBlock& queries, float* scores, Prefetcher* ahead) {
  switch (queries.width / kLanes) {
    case 1:
      return add_wide<1>(keys, k, v, task.head_dim, task.rule, queries, scores, ahead);
    case 2:
      return add_wide<2>(keys, k, v, task.head_dim, task.rule, queries, scores, ahead);
    default:
      return add_wide<3>(keys, k, v, task.head_dim, task.rule, queries, scores, ahead);
  }
}

// The block's queries, [head_dim, width].
HWY_INLINE void turn_queries(const AttentionTask& task, float factor, const QueryBlock& queries) {
  for (std::int64_t i = 0; i < queries.width; ++i) {
    const float* from = query_of(task, queries.first + std::min(i, queries.count - 1));
    for (std::int64_t dim = 0; dim < task.head_dim; ++dim) {
      queries.q[dim * queries.width + i] = from[dim] * factor;
    }
  }
}

HWY_INLINE void finish_wide(const AttentionTask& task, const QueryBlock& queries) {
  for (std::int64_t i = 0; i < queries.count; ++i) {
    const float inverse = finish_query(task, queries, i);
    float* to = out_of(task, queries.first + i);
    for (std::int64_t dim = 0; dim < task.head_dim; ++dim) {
      to[dim] = queries.out[dim * queries.width + i] * inverse;
    }
  }
}

// The block's keys or values as consecutive fp32: where they are, or converted into `scratch`.
template <typename T>
HWY_INLINE const float* as_fp32(const KeyBlock& keys, std::int64_t head_dim, const void* KeyPiece::* array,
                                float* scratch) {
  if constexpr (std::is_same_v<T, float>) {
    if (keys.chunk_count == 1) {
      return static_cast<const float*>(keys.chunks[0].piece->*array) + keys.chunks[0].first * head_dim;
    }
  }
  float* to = scratch;
  for (const KeyChunk& chunk : keys.parts()) {
    convert(static_cast<const T*>(chunk.piece->*array) + chunk.first * head_dim, chunk.count * head_dim, to);
    to += chunk.count * head_dim;
  }
  return scratch;
}

// Keys looked at together: they, their values and the queries stay in the first cache.
HWY_INLINE std::int64_t wide_block_keys(std::int64_t head_dim) { return head_dim <= 32 ? kMostBlockKeys : 32; }

// `count` of the task's queries, at most kMostQueryBlocks times kWidest.
template <typename T>
HWY_NOINLINE void attend_wide(const AttentionTask& task, std::int64_t first, std::int64_t count, float factor) {
  const std::int64_t block_keys = wide_block_keys(task.head_dim);
  Scratch& scratch = Scratch::of_thread();
  scratch.reset();
  float* k_scratch = scratch.take(block_keys * task.head_dim);
  float* v_scratch = scratch.take(block_keys * task.head_dim);
  float* scores = scratch.take(block_keys * kWidest);
  std::array<QueryBlock, kMostQueryBlocks> blocks;
  std::size_t block_count = 0;
  for (const std::int64_t end = first + count; first < end; first += kWidest) {
    const std::int64_t queries = std::min(kWidest, end - first);
    QueryBlock& block = blocks[block_count++];
    block = begin_queries(task, first, queries, (queries + kLanes - 1) / kLanes * kLanes, &scratch);
    turn_queries(task, factor, block);
  }
  const std::span<const QueryBlock> all(blocks.data(), block_count);
  KeyBlocks walk(task.pieces, block_keys, task.rule.needs_positions());
  KeyBlock keys;
  while (walk.next(&keys)) {
    const float* k = as_fp32<T>(keys, task.head_dim, &KeyPiece::k, k_scratch);
    const float* v = as_fp32<T>(keys, task.head_dim, &KeyPiece::v, v_scratch);
    Prefetcher ahead =
        walk.prefetcher(task.head_dim * static_cast<std::int64_t>(sizeof(T)),
                        static_cast<std::int64_t>(block_count) * (block_keys + task.head_dim) / kMostTile);
    for (const QueryBlock& queries : all) {
      add_wide(keys, k, v, task, queries, scores, &ahead);
    }
  }
  for (const QueryBlock& queries : all) {
    finish_wide(task, queries);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
