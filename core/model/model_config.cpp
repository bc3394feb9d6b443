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

ModelConfig read_model_config(const checkpoint::ModelFiles& files) {
  const std::string where = files.where("config.json");
  const nlohmann::json document = parse_json_object(files.read("config.json"), where);
  const Fields fields(document, where);

  ModelConfig config;
  config.architecture = read_architecture(fields);
  refuse_quantised(fields);
  config.architecture->read_config(fields, &config);
  config.layer_configs.resize(static_cast<std::size_t>(config.layers));

  if (const std::optional<std::string> text = files.find("generation_config.json")) {
    const std::string generation_where = files.where("generation_config.json");
    const nlohmann::json generation = parse_json_object(*text, generation_where);
    config.end_tokens = Fields(generation, generation_where).token_ids("eos_token_id");
  }
  if (config.end_tokens.empty()) {
    config.end_tokens = fields.token_ids("eos_token_id");
  }
  return config;
}

}  // namespace promptcached::model
