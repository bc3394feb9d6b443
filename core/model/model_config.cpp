#include "core/model/model_config.h"

#include <stdexcept>

#include "core/model/architectures/architecture.h"
#include "core/model/config_fields.h"

namespace promptcached::model {
namespace {

const Architecture* read_architecture(const Fields& fields) {
  const std::vector<std::string> names = fields.texts("architectures");
  if (names.empty()) {
    fields.refuse("architectures", "is missing; known: " + known_architectures());
  }
  const Architecture* architecture = find_architecture(names.front());
  if (architecture == nullptr) {
    fields.refuse("architectures",
                  "names '" + names.front() + "', which is not supported; known: " + known_architectures());
  }
  return architecture;
}

// GPTQ, AWQ and their like, by name.
void refuse_quantised(const Fields& fields) {
  if (const std::optional<Fields> quantised = fields.object("quantization_config")) {
    fields.refuse("quantization_config", "names '" + quantised->text("quant_method", "unknown") +
                                             "': quantised checkpoints are not supported; use the original weights");
  }
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    throw std::runtime_error("model directory " + directory.string() + " does not exist");
  }
  const std::filesystem::path path = directory / "config.json";
  const nlohmann::json document = read_json_object(path);
  const Fields fields(document, path.string());

  ModelConfig config;
  config.architecture = read_architecture(fields);
  refuse_quantised(fields);
  config.architecture->read_config(fields, &config);
  config.layer_configs.resize(static_cast<std::size_t>(config.layers));

  const std::filesystem::path generation_path = directory / "generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const nlohmann::json generation = read_json_object(generation_path);
    config.end_tokens = Fields(generation, generation_path.string()).token_ids("eos_token_id");
  }
  if (config.end_tokens.empty()) {
    config.end_tokens = fields.token_ids("eos_token_id");
  }
  return config;
}

}  // namespace promptcached::model
