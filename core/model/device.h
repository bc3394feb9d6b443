// Where and in which number formats a model computes: the meaning of --device, --weights, --kv-dtype and --threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>

#include "core/kernels/attention.h"
#include "core/model/causal_lm.h"

namespace promptcached::model {

struct Compute {
  at::Device device = at::kCPU;
  at::ScalarType weights = at::kFloat;    // of weights and hidden states
  at::ScalarType attention = at::kFloat;  // of queries and softmax inputs: fp32 on the CPU, whatever the weights
  at::ScalarType kv = at::kFloat;
  bool int8_weights = false;  // matrices are rounded to 8 bits; the CPU alone, and `weights` is fp32
};

// Loads CUDA when it is asked for, and turns names into formats. Throws std::runtime_error with one line that says what
// is not there: the driver, libtorch's CUDA library, or the device. Must run before anything else touches CUDA through
// ATen, which remembers for the life of the process whether it was there.
Compute resolve_compute(const LoadOptions& options);

// "fp32", "bf16", "fp16".
std::string dtype_name(at::ScalarType dtype);

// The same of weights, and "int8".
std::string weights_name(const Compute& compute);

// A KV format as our own loops know it.
kernels::KvFormat kv_format(at::ScalarType dtype);

// Physical cores this process may use, at least 1.
int physical_cores();

// Sets the threads of the process's tensor operations.
void set_threads(int threads);

// Makes the calling thread, and the threads that help it in tensor operations, treat denormal numbers as zero: they
// are up to a hundred times slower and never matter here. Cheap after the first call on a thread.
void flush_denormals();

// A tensor over memory that others own; keep that alive. `data` lies on `device`.
at::Tensor tensor_over(void* data, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                       at::Device device);

}  // namespace promptcached::model
