#include "core/model/device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/model/aten.h"
#include "core/model/model_plan.h"
#include "core/model/parallel.h"

namespace promptcached::model {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";
constexpr const char* kTorchLibrary = "libtorch_cuda.so";

// Why CUDA cannot be used; empty when it can. Tried once: libraries stay loaded.
const std::string& cuda_fault() {
  static const std::string kFault = []() -> std::string {
    if (::dlopen(kDriverLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      return std::string("there is no NVIDIA driver (") + kDriverLibrary + " cannot be loaded)";
    }
    if (::dlopen(kTorchLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char* reason = ::dlerror();
      return std::string("libtorch's CUDA library cannot be loaded: ") + (reason == nullptr ? kTorchLibrary : reason);
    }
    if (!at::hasCUDA() || at::getNumGPUs() == 0) {
      return "no CUDA device was found";
    }
    return "";
  }();
  return kFault;
}

at::Device cuda_device(const std::string& name) {
  int index = 0;
  if (name != "cuda") {
    const std::string digits = name.substr(5);
    if (digits.empty() || digits.size() > 3 || !std::all_of(digits.begin(), digits.end(), ::isdigit)) {
      throw std::runtime_error("--device '" + name + "': expected cuda or cuda:<number>");
    }
    index = std::stoi(digits);
  }
  if (!cuda_fault().empty()) {
    throw std::runtime_error("--device " + name + ": " + cuda_fault());
  }
  const auto count = static_cast<int>(at::getNumGPUs());
  if (index >= count) {
    throw std::runtime_error("--device " + name + ": there are only " + std::to_string(count) + " CUDA devices");
  }
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

at::Device resolve_device(const LoadOptions& options) {
  if (options.device == "cpu") {
    return at::kCPU;
  }
  if (options.device == "auto") {
    if (cuda_fault().empty()) {
      return {at::kCUDA, 0};
    }
    if (options.log) {
      options.log("computing on the CPU: " + cuda_fault());
    }
    return at::kCPU;
  }
  if (options.device == "cuda" || options.device.rfind("cuda:", 0) == 0) {
    return cuda_device(options.device);
  }
  throw std::runtime_error("--device '" + options.device + "': expected auto, cpu, cuda or cuda:<number>");
}

at::ScalarType dtype_of(const std::string& flag, const std::string& name, const std::string& known) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (dtype_name(dtype) == name) {
      return dtype;
    }
  }
  throw std::runtime_error(flag + " '" + name + "': expected " + known);
}

}  // namespace

Compute resolve_compute(const LoadOptions& options) {
  Compute compute;
  compute.device = resolve_device(options);
  const bool on_cuda = compute.device.is_cuda();
  const std::string weights = options.weights == "auto" ? automatic_weights(on_cuda) : options.weights;
  compute.int8_weights = weights == "int8";
  if (compute.int8_weights && on_cuda) {
    throw std::runtime_error("--weights int8: on the CPU alone; use bf16 or fp16 with --device " + options.device);
  }
  compute.weights =
      compute.int8_weights ? at::kFloat : dtype_of("--weights", weights, "auto, fp32, bf16, fp16 or int8");
  compute.kv = dtype_of("--kv-dtype", options.kv_dtype == "auto" ? automatic_kv_dtype(on_cuda) : options.kv_dtype,
                        "auto, fp32, bf16 or fp16");
  compute.attention = compute.device.is_cpu() ? at::kFloat : compute.weights;
  return compute;
}

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    default:
      return c10::toString(dtype);
  }
}

kernels::KvFormat kv_format(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return kernels::KvFormat::kFp16;
    case at::kBFloat16:
      return kernels::KvFormat::kBf16;
    default:
      return kernels::KvFormat::kFp32;
  }
}

std::string weights_name(const Compute& compute) { return compute.int8_weights ? "int8" : dtype_name(compute.weights); }

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  // Logical processors of one core name the same list of siblings.
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) {
      std::ifstream stream("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
      std::string siblings;
      cores.insert(std::getline(stream, siblings) ? siblings : std::to_string(cpu));
    }
  }
  return std::max(1, static_cast<int>(cores.size()));
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  set_team_threads(threads);
}

void flush_denormals() {
  // The mode belongs to a thread; a thread's helpers are its own for life, so once for each calling thread is enough.
  static thread_local int flushed_threads = 0;
  const int threads = at::get_num_threads();
  if (flushed_threads == threads) {
    return;
  }
  at::parallel_for(0, threads, 1, [](std::int64_t, std::int64_t) { at::globalContext().setFlushDenormal(true); });
  flushed_threads = threads;
}

at::Tensor tensor_over(void* data, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                       at::Device device) {
  return at::for_blob(data, sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(dtype).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace promptcached::model
