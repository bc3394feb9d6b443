// Few queries over any number of reads, all computed in one parallel region.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "core/model/attention_backend.h"
#include "core/model/streaming_attention.h"

namespace promptcached::model {

// As AttentionBackend::add, for fp32 queries on the CPU whose head size can_stream().
void stream_reads(const at::Tensor& q, std::span<const StoredKeys> reads, AttentionSum* sum);

}  // namespace promptcached::model
