#include "core/model/linear.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/kernels/int8_linear.h"
#include "core/model/aten.h"
#include "core/model/few_rows_linear.h"
#include "core/model/parallel.h"

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
  for_each_run(weight.size(0), kWeightsPerTask / in / 4 * 4 + 4, [&](std::int64_t begin, std::int64_t end) {
    multiply_few_rows(x.size(0), in, source, x.stride(0), w, begin, end, add, target, y.stride(0));
  });
}

// Panels of a matrix that make a task, so that there are enough of them for all threads and none is too small.
std::int64_t task_panels(const Linear& linear) {
  return std::max<std::int64_t>(1, kWeightsPerTask / (linear.in * kernels::kPanelOutputs));
}

// x in 16 bits, in memory that is kept from call to call.
kernels::Int16Rows rounded(const at::Tensor& x) {
  static thread_local std::vector<std::int16_t> numbers;
  static thread_local std::vector<float> scales;
  const std::int64_t rows = x.size(0);
  const std::int64_t in = x.size(1);
  const std::int64_t padded = kernels::padded_inputs(in);
  numbers.resize(std::max(numbers.size(), static_cast<std::size_t>(rows * padded)));
  const std::int64_t groups = kernels::groups_of(in);
  scales.resize(std::max(scales.size(), static_cast<std::size_t>(rows * groups)));
  const auto* source = x.const_data_ptr<float>();
  std::int16_t* target = numbers.data();
  float* target_scales = scales.data();
  const std::int64_t stride = x.stride(0);
  for_each_run(rows, rows_per_task(in), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels::quantize_row(source + row * stride, in, target + row * padded, target_scales + row * groups);
    }
  });
  return {rows, target, target_scales};
}

void multiply_packed(const Linear& linear, const at::Tensor& x, kernels::Store store, const at::Tensor& y) {
  const kernels::Int8Matrix matrix{linear.out, linear.in,
                                   static_cast<const std::byte*>(linear.packed.const_data_ptr())};
  const kernels::Int16Rows inputs = rounded(x.stride(1) == 1 ? x : x.contiguous());
  const float* bias = linear.bias.defined() ? linear.bias.const_data_ptr<float>() : nullptr;
  auto* target = y.mutable_data_ptr<float>();
  const std::int64_t stride = y.stride(0);
  const std::int64_t panels = kernels::panels_of(linear.out);
  for_each_run(panels, task_panels(linear), [&](std::int64_t first, std::int64_t last) {
    kernels::multiply(matrix, inputs, first, last, bias, store, target, stride);
  });
}

}  // namespace

Linear dense_linear(at::Tensor weight, at::Tensor bias) {
  Linear linear;
  linear.out = weight.size(0);
  linear.in = weight.size(1);
  linear.weight = std::move(weight);
  linear.bias = std::move(bias);
  return linear;
}

void pack(Linear* linear) {
  const auto [out, in] = std::pair(linear->out, linear->in);
  linear->packed = at::empty({static_cast<std::int64_t>(kernels::int8_bytes(out, in))}, at::kByte);
  auto* data = static_cast<std::byte*>(linear->packed.mutable_data_ptr());
  const std::int64_t panels = kernels::panels_of(out);
  for_each_run(panels, task_panels(*linear), [&, out = out, in = in](std::int64_t first, std::int64_t last) {
    const std::int64_t row = first * kernels::kPanelOutputs;
    const std::int64_t rows = std::min(out, last * kernels::kPanelOutputs) - row;
    const at::Tensor numbers = linear->weight.narrow(0, row, rows).to(at::kFloat);
    kernels::quantize_panels(numbers.const_data_ptr<float>(), in, out, in, first, last, data);
  });
  linear->weight = at::Tensor();
  if (linear->bias.defined()) {
    linear->bias = linear->bias.to(at::kFloat);
  }
}

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  if (linear.packed.defined()) {
    const at::Tensor y = at::empty({x.size(0), linear.out}, x.options());
    multiply_packed(linear, x, kernels::Store::kSet, y);
    return y;
  }
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
  if (linear.packed.defined()) {
    multiply_packed(linear, x, kernels::Store::kAdd, *sum);
    return;
  }
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
