// Matrix products with the model's weights.
#pragma once

#include <ATen/core/Tensor.h>

namespace promptcached::model {

struct Linear {
  at::Tensor weight;  // [out, in], contiguous
  at::Tensor bias;    // [out], or undefined
};

// x * weight^T + bias
at::Tensor apply(const Linear& linear, const at::Tensor& x);  // [rows, in] -> [rows, out]

// sum += x * weight^T + bias
void add_applied(const Linear& linear, const at::Tensor& x,  // [rows, in]
                 at::Tensor* sum);                           // [rows, out]

}  // namespace promptcached::model
