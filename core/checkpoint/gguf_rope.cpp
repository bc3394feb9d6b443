#include "core/checkpoint/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "core/checkpoint/gguf_metadata.h"

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kFactors = "rope_freqs.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";

class Scaling final {
 public:
  Scaling(const GgufFile& file, const std::string& architecture, std::int64_t rotated_dims)
      : file_(file), prefix_(architecture + ".rope."), pairs_(rotated_dims / 2) {}

  Json read() const {
    const std::string type = read_type();
    const Json factors = read_factors(kFactors);
    // All ones leave everything as it is.
    if (!factors.is_null() && std::ranges::any_of(factors, [](const Json& factor) { return factor != 1.0; })) {
      if (type != "none") {
        refuse_metadata(file_, key("scaling.type"), "is '" + type + "', but tensor '" + kFactors + "' scales as well");
      }
      return {{"rope_type", "frequency_factors"}, {"factors", factors}};
    }
    if (has_tensor(kLongFactors) || has_tensor(kShortFactors) || type == "longrope") {
      return read_longrope(type);
    }
    if (type == "none") {
      return nullptr;
    }
    if (type == "linear") {
      const double factor = read_factor();
      return factor == 1.0 ? Json(nullptr) : Json{{"rope_type", "linear"}, {"factor", factor}};
    }
    if (type == "yarn") {
      return read_yarn();
    }
    refuse_metadata(file_, key("scaling.type"),
                    "names '" + type + "', which is not supported; known: none, linear, yarn, longrope");
  }

 private:
  std::string key(const std::string& name) const { return prefix_ + name; }
  bool has_tensor(const char* name) const { return file_.tensors().find(name) != nullptr; }

  // A factor without a type means linear scaling, as it did before there were types.
  std::string read_type() const {
    if (std::optional<std::string> type = file_.text(key("scaling.type"))) {
      return *std::move(type);
    }
    return file_.has(key("scaling.factor")) || file_.has(key("scale_linear")) ? "linear" : "none";
  }

  double read_factor() const {
    const std::string name = file_.has(key("scaling.factor")) ? key("scaling.factor") : key("scale_linear");
    const double factor =
        file_.has(name) ? required_decimal(file_, name) : required_decimal(file_, key("scaling.factor"));
    return factor == 0.0 ? 1.0 : factor;  // 0: none
  }

  // One divisor for each pair of dimensions; null when there is no such tensor.
  Json read_factors(const char* name) const {
    const StoredTensor* tensor = file_.tensors().find(name);
    if (tensor == nullptr) {
      return nullptr;
    }
    if (tensor->dtype != "F32" || tensor->shape != std::vector<std::int64_t>{pairs_}) {
      throw std::runtime_error(file_.path().string() + ": tensor '" + name + "' must hold " + std::to_string(pairs_) +
                               " values of F32, one for each pair of rotated dimensions");
    }
    std::vector<float> values(static_cast<std::size_t>(pairs_));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    Json factors = Json::array();
    for (const float value : values) {
      factors.push_back(shortest_decimal(value));
    }
    return factors;
  }

  Json read_longrope(const std::string& type) const {
    if (type != "none" && type != "longrope") {
      refuse_metadata(file_, key("scaling.type"), "is '" + type + "', but there are tensors of longrope");
    }
    Json scaling = {{"rope_type", "longrope"}};
    for (const auto& [field, name] :
         {std::pair("short_factor", kShortFactors), std::pair("long_factor", kLongFactors)}) {
      scaling[field] = read_factors(name);
      if (scaling[field].is_null()) {
        throw std::runtime_error(file_.path().string() + ": tensor '" + name + "' is missing, which longrope needs");
      }
    }
    scaling["original_max_position_embeddings"] = required_integer(file_, key("scaling.original_context_length"));
    if (const std::optional<double> factor = decimal(file_, key("scaling.attn_factor"))) {
      scaling["attention_factor"] = *factor;
    }
    return scaling;
  }

  Json read_yarn() const {
    refuse_unless(key("scaling.yarn_ext_factor"), 1.0);
    refuse_unless(key("scaling.yarn_log_multiplier"), 0.0);
    const double factor = read_factor();
    Json scaling = {{"rope_type", "yarn"}, {"factor", factor}};
    scaling["original_max_position_embeddings"] = required_integer(file_, key("scaling.original_context_length"));
    for (const char* beta : {"beta_fast", "beta_slow"}) {
      if (const std::optional<double> value = decimal(file_, key(std::string("scaling.yarn_") + beta))) {
        scaling[beta] = *value;
      }
    }
    // ggml multiplies its own factor by this one; transformers take the product.
    for (const char* name : {"scaling.attn_factor", "scaling.yarn_attn_factor"}) {
      const double extra = decimal(file_, key(name)).value_or(1.0);
      if (extra != 1.0) {
        scaling["attention_factor"] = extra * (factor > 1.0 ? 0.1 * std::log(factor) + 1.0 : 1.0);
      }
    }
    return scaling;
  }

  void refuse_unless(const std::string& name, double neutral) const {
    const double value = decimal(file_, name).value_or(neutral);
    if (value != neutral) {
      refuse_metadata(file_, name,
                      "is " + Json(value).dump() + ", which is not supported; known: " + Json(neutral).dump());
    }
  }

  const GgufFile& file_;
  std::string prefix_;
  std::int64_t pairs_;
};

}  // namespace

Json gguf_rope_scaling(const GgufFile& file, const std::string& architecture, std::int64_t rotated_dims) {
  return Scaling(file, architecture, rotated_dims).read();
}

}  // namespace promptcached::checkpoint
