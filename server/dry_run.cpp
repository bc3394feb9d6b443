#include "server/dry_run.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "core/kv/kv_memory.h"
#include "core/model/architectures/architecture.h"
#include "core/model/model_config.h"
#include "core/model/model_plan.h"

namespace promptcached::server {
namespace {

// ---- Numbers as people read them ----

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

// "6,738,415,616"
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3) {
    text.insert(static_cast<std::size_t>(place), ",");
  }
  return text;
}

// The largest unit that leaves at least 1 before the point, each `step` times the one before it.
std::string scaled(double number, double step, const std::array<const char*, 6>& units, const char* format) {
  std::size_t unit = 0;
  while (number >= step && unit + 1 < units.size()) {
    number /= step;
    ++unit;
  }
  return print(format, number) + units[unit];
}

std::string size(double bytes) {
  return scaled(bytes, 1024, {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB"}, bytes < 1024 ? "%.0f" : "%.2f");
}

std::string flops(double count) { return scaled(count, 1000, {"", " K", " M", " G", " T", " P"}, "%.2f"); }

// Always in MiB, as the paper's table 2 has it.
std::string mebibytes(std::size_t bytes) {
  const double number = static_cast<double>(bytes) / (1 << 20);
  return print(number < 0.095 ? "%.2g MiB" : "%.2f MiB", number);
}

// ---- The page ----

class Page final {
 public:
  void line(const std::string& label, const std::string& text) {
    text_ += label + std::string(kLabel - std::min(label.size(), kLabel - 1), ' ') + text + "\n";
  }

  // Cells are ASCII, right-aligned below each other; `remark` stands behind them.
  void row(const std::string& label, const std::vector<std::string>& cells, const std::string& remark = {}) {
    std::string text;
    for (const std::string& cell : cells) {
      text += std::string(kCell - std::min(cell.size(), kCell - 1), ' ') + cell;
    }
    line(label, text + (remark.empty() ? "" : "   " + remark));
  }

  void heading(const std::string& text) { text_ += text + "\n"; }
  void gap() { text_ += "\n"; }
  const std::string& text() const { return text_; }

 private:
  static constexpr std::size_t kLabel = 22;
  static constexpr std::size_t kCell = 17;
  std::string text_;
};

// ---- What the options say ----

bool computes_on_cuda(const Config& config) { return config.model.device.starts_with("cuda"); }

struct NumberFormat {
  std::string name;
  std::string why;
};

// As the model resolves them when it is loaded (core/model/device.cpp), but for a look at what the machine has.
NumberFormat number_format(const Config& config, const std::string& flag, const std::string& given,
                           const char* automatic) {
  if (given != "auto") {
    return {given, flag};
  }
  return {automatic, computes_on_cuda(config) ? "auto, on CUDA" : "auto, on the CPU"};
}

struct Tier {
  std::string name;
  std::optional<std::size_t> bytes;  // nothing: not known before the server starts
  std::string why;
};

// The device's default is half of what is free once the weights are loaded (core/engine/engine.cpp).
Tier device_tier(const Config& config, std::size_t free_host_bytes, std::size_t weight_bytes) {
  if (config.engine.kv_device_bytes > 0) {
    return {"device", config.engine.kv_device_bytes, "--kv-device-bytes"};
  }
  if (computes_on_cuda(config)) {
    return {"device", std::nullopt, "half of what is free on the device once the weights are loaded"};
  }
  const std::size_t left = free_host_bytes - std::min(free_host_bytes, weight_bytes);
  return {"device", left / 2,
          "half of what the weights leave of " + size(static_cast<double>(free_host_bytes)) + " free here"};
}

// In the order in which a module is looked for.
std::vector<Tier> tiers(const Config& config, std::size_t free_host_bytes, std::size_t weight_bytes) {
  std::vector<Tier> all = {device_tier(config, free_host_bytes, weight_bytes)};
  const engine::TierOptions& below = config.engine.tiers;
  const std::size_t left = free_host_bytes - std::min(free_host_bytes, computes_on_cuda(config) ? 0 : weight_bytes);
  if (!below.host_bytes.has_value()) {
    all.push_back({"host", left / engine::kHostShare, "a quarter of the memory that is free here"});
  } else if (*below.host_bytes > 0) {
    all.push_back({"host", below.host_bytes, "--kv-host-bytes"});
  }
  if (!below.disk_path.empty()) {
    all.push_back({"disk", below.disk_bytes, "--kv-disk-bytes, in " + below.disk_path.string()});
  }
  if (!below.remote_uri.empty()) {
    all.push_back({"remote", std::nullopt, "as much as that store keeps"});
  }
  return all;
}

// ---- The page's parts ----

std::string attention_kind(const model::ModelConfig& model) {
  return model.kv_heads == model.heads ? "multi-head" : model.kv_heads == 1 ? "multi-query" : "grouped-query";
}

void add_shape(const Config& config, const model::ModelConfig& model, Page& page) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  page.line("architecture", std::string(model.architecture->name));
  page.line("layers", text(model.layers) + ", hidden size " + text(model.hidden_size) + ", MLP " +
                          text(model.intermediate_size) + (model.gated_mlp ? " (gated)" : "") + ", vocabulary " +
                          text(model.vocab_size));
  page.line("attention", text(model.heads) + " heads of " + text(model.head_dim) + ", " + text(model.kv_heads) +
                             (model.kv_heads == 1 ? " KV head (" : " KV heads (") + attention_kind(model) + ")");
  const auto slides = [](const model::LayerConfig& layer) { return layer.window > 0; };
  const auto sliding = std::ranges::find_if(model.layer_configs, slides);
  if (sliding != model.layer_configs.end()) {
    page.line("sliding window", grouped(sliding->window) + " positions in " +
                                    text(std::ranges::count_if(model.layer_configs, slides)) + " layers");
  }
  const std::int64_t positions = model::usable_positions(model, config.model.max_model_len);
  page.line("positions",
            grouped(positions) + (positions == model.max_positions ? " (the model's)" : " (--max-model-len)"));
}

// Returns the bytes of the weights.
std::size_t add_weights(const Config& config, const model::ModelConfig& model, Page& page) {
  const NumberFormat format =
      number_format(config, "--weights", config.model.weights, model::automatic_weights(computes_on_cuda(config)));
  const std::int64_t parameters = model::count_parameters(model).all;
  const auto bytes = static_cast<std::size_t>(model::weight_bytes(model, format.name));
  page.line("device", config.model.device == "auto" ? "cpu (auto: a dry run looks for no other)" : config.model.device);
  page.line("parameters", grouped(parameters));
  page.line("weights", size(static_cast<double>(bytes)) + " as " + format.name + " (" + format.why + ")");
  return bytes;
}

// Returns the bytes of a token.
std::size_t add_kv(const Config& config, const model::ModelConfig& model, Page& page) {
  const NumberFormat format =
      number_format(config, "--kv-dtype", config.model.kv_dtype, model::automatic_kv_dtype(computes_on_cuda(config)));
  const kv::KvGeometry geometry{static_cast<std::int32_t>(model.layers), static_cast<std::int32_t>(model.kv_heads),
                                static_cast<std::int32_t>(model.head_dim), kv::format_named(format.name)};
  const std::size_t bytes = geometry.bytes_per_token();
  page.line("KV per token", grouped(static_cast<std::int64_t>(bytes)) + " bytes (" + mebibytes(bytes) + ") as " +
                                format.name + " (" + format.why + ")");
  return bytes;
}

void add_tiers(const std::vector<Tier>& all, std::size_t bytes_per_token, Page& page) {
  page.row("tier", {"budget", "module tokens"});
  for (const Tier& tier : all) {
    if (tier.bytes) {
      page.row(
          "  " + tier.name,
          {size(static_cast<double>(*tier.bytes)), grouped(static_cast<std::int64_t>(*tier.bytes / bytes_per_token))},
          tier.why);
    } else {
      page.row("  " + tier.name, {"not known yet", "-"}, tier.why);
    }
  }
}

// Lengths of prompts: two usual ones, and the longest.
std::vector<std::int64_t> prompt_lengths(std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : {1000, 4000}) {
    if (length < longest) {
      lengths.push_back(length);
    }
  }
  lengths.push_back(longest);
  return lengths;
}

void add_flops(const Config& config, const model::ModelConfig& model, Page& page) {
  constexpr std::int64_t kNew = 24;  // a short question behind its modules
  const model::FlopCount count(model);
  const std::vector<std::int64_t> lengths = prompt_lengths(model::usable_positions(model, config.model.max_model_len));
  const auto row = [&page](std::int64_t tokens, double whole, double reused, double token) {
    page.row("  " + grouped(tokens) + " tokens",
             {flops(whole), flops(reused), print("%.1f", whole / reused), flops(token)});
  };
  page.row("FLOPs of a prompt", {"full prefill", grouped(kNew) + " new tokens", "ratio", "per new token"});
  for (const std::int64_t tokens : lengths) {
    const std::int64_t cached = std::max<std::int64_t>(tokens - kNew, 0);
    row(tokens, count.prompt(tokens, 0), count.prompt(tokens, cached), count.token(tokens));
  }
  page.heading("by the paper's formulas (the attention of one layer)");
  for (const std::int64_t tokens : lengths) {
    const double token = count.paper_token(tokens);
    row(tokens, static_cast<double>(tokens) * token, static_cast<double>(std::min(tokens, kNew)) * token, token);
  }
}

}  // namespace

std::string dry_run(const Config& config, std::size_t free_host_bytes) {
  const model::ModelConfig model = model::read_model_config(config.model.path);
  Page page;
  add_shape(config, model, page);
  page.gap();
  const std::size_t weight_bytes = add_weights(config, model, page);
  const std::size_t bytes_per_token = add_kv(config, model, page);
  page.gap();
  add_tiers(tiers(config, free_host_bytes, weight_bytes), bytes_per_token, page);
  page.gap();
  add_flops(config, model, page);
  return page.text();
}

}  // namespace promptcached::server
