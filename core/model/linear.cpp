#include "core/model/linear.h"

#include "core/model/aten.h"
#include "core/model/few_rows_linear.h"

namespace promptcached::model {
namespace {

// Weights below which a second thread costs more than it saves.
constexpr std::int64_t kWeightsPerTask = 64 * 1024;

bool has_few_rows(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.size(0) > 0 && x.size(0) <= kFewRows && x.stride(1) == 1 &&
         can_multiply_few_rows();
}

void multiply(const at::Tensor& weight, const at::Tensor& x, bool add, const at::Tensor& y) {
  const std::int64_t in = weight.size(1);
  const auto* w = weight.const_data_ptr<float>();
  const auto* source = x.const_data_ptr<float>();
  auto* target = y.mutable_data_ptr<float>();
  at::parallel_for(0, weight.size(0), kWeightsPerTask / in + 1, [&](std::int64_t begin, std::int64_t end) {
    multiply_few_rows(x.size(0), in, source, x.stride(0), w, begin, end, add, target, y.stride(0));
  });
}

}  // namespace

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  if (has_few_rows(x)) {
    const bool has_bias = linear.bias.defined();
    const at::Tensor y =
        has_bias ? linear.bias.repeat({x.size(0), 1}) : at::empty({x.size(0), linear.weight.size(0)}, x.options());
    multiply(linear.weight, x, has_bias, y);
    return y;
  }
  return linear.bias.defined() ? at::addmm(linear.bias, x, linear.weight.t()) : at::mm(x, linear.weight.t());
}

void add_applied(const Linear& linear, const at::Tensor& x, at::Tensor* sum) {
  if (has_few_rows(x)) {
    multiply(linear.weight, x, /*add=*/true, *sum);
  } else {
    sum->addmm_(x, linear.weight.t());
  }
  if (linear.bias.defined()) {
    sum->add_(linear.bias);
  }
}

}  // namespace promptcached::model
