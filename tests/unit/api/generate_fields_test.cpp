#include "api/wire/generate.h"

#include <string>

#include "tests/catch.h"

namespace promptcached::api {
namespace {

HttpRequest json_request(std::string body) {
  HttpRequest request;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = std::move(body);
  return request;
}

WireGenerate read(const std::string& fields) {
  HttpRequest request = json_request(R"({"prompt":"<prompt/>")" + (fields.empty() ? "" : "," + fields) + "}");
  Result<WireGenerate> wire = read_generate(request);
  CAPTURE(fields);
  REQUIRE(wire.ok());
  return std::move(*wire);
}

Error refused(const std::string& fields) {
  HttpRequest request = json_request(R"({"prompt":"<prompt/>",)" + fields + "}");
  const Result<WireGenerate> wire = read_generate(request);
  CAPTURE(fields);
  REQUIRE_FALSE(wire.ok());
  return wire.error();
}

}  // namespace

TEST_CASE("defaults are the engine's", "[api]") {
  const WireGenerate wire = read("");
  const engine::SamplingOptions defaults;
  CHECK(wire.prompt == "<prompt/>");
  CHECK_FALSE(wire.max_tokens.has_value());
  CHECK(wire.sampling.temperature == defaults.temperature);
  CHECK(wire.sampling.repetition_penalty == defaults.repetition_penalty);
  CHECK_FALSE(wire.sampling.seed.has_value());
  CHECK(wire.stream);
  CHECK(wire.add_generation_prompt);
  CHECK_FALSE(wire.echo);
  CHECK(wire.fidelity == Fidelity::kModular);
  CHECK_FALSE(wire.bypass_cache);
}

TEST_CASE("null is absent, for every field", "[api]") {
  const WireGenerate wire = read(
      R"("max_tokens":null,"temperature":null,"top_p":null,"top_k":null,"min_p":null,"repetition_penalty":null,)"
      R"("presence_penalty":null,"frequency_penalty":null,"seed":null,"logit_bias":null,"stop":null,"stream":null,)"
      R"("logprobs":null,"fidelity":null,"k":null,"ignore_eos":null,"add_generation_prompt":null,"echo":null,"cache":null)");
  CHECK(wire.stream);
  CHECK(wire.sampling.temperature == 1.0F);
}

TEST_CASE("every field is read", "[api]") {
  const WireGenerate wire =
      read(R"("max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,)"
           R"("presence_penalty":-2,"frequency_penalty":2,"seed":18446744073709551615,"logit_bias":{"5":-100,"0":1.5},)"
           R"("stop":["a","b"],"stream":false,"logprobs":20,"fidelity":"exact","ignore_eos":true,)"
           R"("add_generation_prompt":false,"echo":true,"cache":"bypass")");
  CHECK(wire.max_tokens == 7);
  CHECK(wire.sampling.top_p == 0.9F);
  CHECK(wire.sampling.top_k == 40);
  CHECK(wire.sampling.seed == std::uint64_t(-1));
  CHECK(wire.sampling.logit_bias == std::map<TokenId, float>{{0, 1.5F}, {5, -100.0F}});
  CHECK(wire.stop == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(wire.stream);
  CHECK(wire.top_logprobs == 20);
  CHECK(wire.ignore_eos);
  CHECK_FALSE(wire.add_generation_prompt);
  CHECK(wire.echo);
  CHECK(wire.fidelity == Fidelity::kExact);
  CHECK(wire.bypass_cache);
  CHECK(read(R"("temperature":1e-5)").sampling.temperature == 1e-5F);
  CHECK(read(R"("stop":"one")").stop == std::vector<std::string>{"one"});
}

TEST_CASE("limits of docs/api.md", "[api]") {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"max_tokens", {"0", "-1", "2.5", "\"5\"", "1e10", "true", "[]"}},
      {"temperature", {"-0.1", "2.1", "1e39", "\"1\""}},
      {"top_p", {"0", "1.1", "-1"}},
      {"top_k", {"-1", "1.5"}},
      {"min_p", {"-0.1", "1.1"}},
      {"repetition_penalty", {"0", "-1", "1000"}},
      {"presence_penalty", {"-2.1", "2.1"}},
      {"frequency_penalty", {"-2.1", "2.1"}},
      {"seed", {"1.5", "\"1\"", "1e30"}},
      {"logit_bias", {"[]", "{\"a\":1}", "{\"-1\":1}", "{\"5\":101}", "{\"5\":\"x\"}", "{\"5.0\":1}", "{\"\":1}"}},
      {"stop",
       {"[\"\"]", "\"\"", "[1]", "7",
        R"(["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"}},
      {"stream", {"1", "\"true\""}},
      {"logprobs", {"-1", "21", "true"}},
      {"fidelity", {"\"first_k\"", "\"blend\"", "\"fast\"", "1"}},
      {"k", {"16", "-1"}},
      {"ignore_eos", {"0"}},
      {"add_generation_prompt", {"\"no\""}},
      {"echo", {"1"}},
      {"cache", {"\"none\"", "true"}},
  };
  for (const auto& [field, values] : cases) {
    for (const char* value : values) {
      const Error error = refused("\"" + std::string(field) + "\":" + value);
      CHECK(error.code == ErrorCode::kInvalidField);
      CHECK(error.param == field);
      CHECK(error.message.rfind(field, 0) == 0);
    }
  }
  CHECK(refused(R"("fidelity":"first_k")").message.find("not supported yet") != std::string::npos);
  CHECK(refused(R"("max_token":1)").message.find("did you mean 'max_tokens'?") != std::string::npos);
  CHECK(refused(R"("model":"x")").code == ErrorCode::kUnknownField);
}

TEST_CASE("the prompt is required", "[api]") {
  for (const char* body : {"{}", R"({"prompt":null})", R"({"prompt":7})", R"({"prompt":["a"]})"}) {
    HttpRequest request = json_request(body);
    const Result<WireGenerate> wire = read_generate(request);
    REQUIRE_FALSE(wire.ok());
    CHECK(wire.error().param == "prompt");
  }
}

TEST_CASE("PML with its options in the query string", "[api]") {
  HttpRequest request;
  request.headers = {{"Content-Type", "application/xml"}};
  request.body = "<prompt schema='s'/>";
  request.query = {{"max_tokens", "5"}, {"temperature", "0"}, {"stream", "false"},         {"stop", "1"},
                   {"stop", "x"},       {"cache", "bypass"},  {"logit_bias", R"({"7":1})"}};
  const Result<WireGenerate> wire = read_generate(request);
  REQUIRE(wire.ok());
  CHECK(wire->prompt == "<prompt schema='s'/>");
  CHECK(wire->max_tokens == 5);
  CHECK(wire->sampling.temperature == 0);
  CHECK_FALSE(wire->stream);
  CHECK(wire->stop == std::vector<std::string>{"1", "x"});
  CHECK(wire->bypass_cache);
  CHECK(wire->sampling.logit_bias.at(7) == 1.0F);

  const auto query_error = [](NameValues query) {
    HttpRequest bad;
    bad.headers = {{"Content-Type", "application/xml"}};
    bad.body = "<prompt schema='s'/>";
    bad.query = std::move(query);
    const Result<WireGenerate> refused_wire = read_generate(bad);
    REQUIRE_FALSE(refused_wire.ok());
    return refused_wire.error();
  };
  CHECK(query_error({{"max_tokens", "x"}}).param == "max_tokens");
  CHECK(query_error({{"max_tokens", "1"}, {"max_tokens", "2"}}).message.find("twice") != std::string::npos);
  CHECK(query_error({{"max_tokes", "1"}}).code == ErrorCode::kUnknownField);
  CHECK(query_error({{"prompt", "x"}}).param == "prompt");
  CHECK(query_error({{"stop", "\xFF"}}).code == ErrorCode::kInvalidField);
}

TEST_CASE("a response format becomes a constraint, its schema in the client's order", "[api]") {
  CHECK_FALSE(read("").constraint.has_value());
  CHECK_FALSE(read(R"("response_format":{"type":"text"})").constraint.has_value());
  CHECK(read(R"("response_format":{"type":"json_object"})").constraint->text == R"({"type":"object"})");
  const guide::Constraint schema =
      *read(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,)"
            R"("schema":{"type":"object","properties":{"z":{},"a":{}}}}})")
           .constraint;
  CHECK(schema.syntax == guide::Syntax::kJsonSchema);
  CHECK(schema.text == R"({"type":"object","properties":{"z":{},"a":{}}})");
  CHECK(schema.param == "response_format");
  const guide::Constraint regex = *read(R"("response_format":{"type":"regex","regex":"a+"})").constraint;
  CHECK(regex.syntax == guide::Syntax::kRegex);
  CHECK(regex.text == "a+");
  const guide::Constraint grammar = *read(R"("response_format":{"type":"grammar","grammar":"start: A"})").constraint;
  CHECK(grammar.syntax == guide::Syntax::kLark);

  CHECK(refused(R"("response_format":{"type":"xml"})").param == "response_format.type");
  CHECK(refused(R"("response_format":{"type":"regex"})").param == "response_format.regex");
  CHECK(refused(R"("response_format":{"type":"json_schema","json_schema":{"schema":5}})").param ==
        "response_format.json_schema.schema");
  CHECK(refused(R"("response_format":{"type":"json_object","schema":{}})").code == ErrorCode::kUnknownField);
  CHECK(refused(R"("guided_regex":"a")").code == ErrorCode::kUnknownField);

  HttpRequest request;
  request.headers = {{"Content-Type", "application/xml"}};
  request.body = "<prompt/>";
  request.query = {{"response_format", R"({"type":"json_schema","json_schema":{"schema":{"required":[],"enum":[]}}})"}};
  CHECK(read_generate(request)->constraint->text == R"({"required":[],"enum":[]})");
}

TEST_CASE("a JSON body has no query string beside it", "[api]") {
  HttpRequest request = json_request(R"({"prompt":"x"})");
  request.query = {{"max_tokens", "5"}};
  CHECK_FALSE(read_generate(request).ok());
}

}  // namespace promptcached::api
