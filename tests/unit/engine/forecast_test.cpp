// A forecast says what then happens, and does nothing itself.
#include "core/engine/forecast.h"

#include <random>

#include "tests/temporary_directory.h"
#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

std::string shown(const std::vector<CachePartInfo>& parts) {
  std::string text;
  for (const CachePartInfo& part : parts) {
    text += part.module + ":" + std::string(to_string(part.source)) + ":" + std::to_string(part.tokens) + " ";
  }
  return text;
}

Forecast forecast(EngineFixture& fixture, const GenerateRequest& request) {
  fixture.engine->tiers().flush(std::chrono::seconds(60));  // what is on its way is neither here nor there
  const std::int64_t rows = fixture.lm->rows;
  Result<Forecast> made = fixture.engine->forecast(request);
  REQUIRE(made.ok());
  CHECK(fixture.lm->rows == rows);
  return std::move(*made);
}

// What leaves the device to make room for a module may push that very module from the host to the disk before it is
// loaded, so that it comes from there. Nothing else may differ.
void check_parts(const std::vector<CachePartInfo>& foreseen, std::vector<CachePartInfo> seen) {
  for (std::size_t i = 0; i < std::min(foreseen.size(), seen.size()); ++i) {
    if (foreseen[i].source == SourceLabel::kHost && seen[i].source == SourceLabel::kDisk) {
      seen[i].source = SourceLabel::kHost;
    }
  }
  CHECK(shown(foreseen) == shown(seen));
}

// Of a request that is then run.
Forecast check_forecast(EngineFixture& fixture, const GenerateRequest& request) {
  Forecast made = forecast(fixture, request);
  const std::int64_t rows = fixture.lm->rows;
  const Answer answer = fixture.run(request);
  REQUIRE(answer.start.has_value());
  check_parts(made.cache, answer.start->cache);
  CHECK(made.usage.prompt_tokens == answer.done->usage.prompt_tokens);
  CHECK(made.usage.cached_tokens == answer.done->usage.cached_tokens);
  CHECK(made.usage.new_tokens == answer.done->usage.new_tokens);
  const std::int64_t own = std::ssize(request.plan.new_tokens);
  const CachePartInfo* const last = answer.start->cache.empty() ? nullptr : &answer.start->cache.back();
  const std::int64_t found = last != nullptr && last->module == "#prefix" ? last->tokens : 0;
  CHECK(fixture.lm->rows - rows == made.encode_tokens + own - found + request.max_tokens - 1);
  return made;
}

std::string schema(int number, const std::string& attention) {
  const std::string n = std::to_string(number);
  return "<schema name='s" + n + "' attention='" + attention + "'>" + EngineFixture::words(number, 12) +
         "<module name='a'>" + EngineFixture::words(number + 1, 20) + "<param name='p' len='3'/></module>" +
         "<union><module name='b'>" + EngineFixture::words(number + 2, 17) + "<module name='c'>" +
         EngineFixture::words(number + 3, 9) + "</module></module><module name='d'>" +
         EngineFixture::words(number + 4, 30) + "</module></union><scaffold modules='a b'/></schema>";
}

TEST_CASE("what was encoded is there, and what was not is computed with what it needs", "[engine]") {
  for (const char* attention : {"isolated", "rooted", "contextual"}) {
    EngineFixture fixture;
    fixture.add_schema(schema(1, attention));
    CHECK(check_forecast(fixture, fixture.request("<prompt schema='s1'><a/><d/>w1 w2</prompt>")).encode_tokens == 0);
    fixture.engine->pool().drop_unpinned();
    const auto made = forecast(fixture, fixture.request("<prompt schema='s1'><b><c/></b>w1 w2</prompt>"));
    CHECK(made.usage.cached_tokens == 0);
    CHECK(made.encode_tokens >= 12 + 17 + 9);
    check_forecast(fixture, fixture.request("<prompt schema='s1'><b><c/></b>w1 w2</prompt>"));
    check_forecast(fixture, fixture.request("<prompt schema='s1'><a/><b/>w1</prompt>"));  // a scaffold
    check_forecast(fixture, fixture.request("<prompt schema='s1'><a p='w9'/>w1</prompt>"));
  }
}

TEST_CASE("with the cache bypassed all is computed", "[engine]") {
  EngineFixture fixture;
  fixture.add_schema(schema(1, "rooted"));
  GenerateRequest request = fixture.request("<prompt schema='s1'><a/><b/>w1 w2</prompt>");
  request.bypass_cache = true;
  const Forecast made = check_forecast(fixture, request);
  CHECK(made.usage.cached_tokens == 0);
  CHECK(made.encode_tokens > 0);
}

TEST_CASE("earlier prompts are found, to the token", "[engine]") {
  EngineFixture fixture;
  fixture.add_schema(schema(1, "rooted"));
  const auto request = fixture.request("<prompt schema='s1'><a/>" + EngineFixture::words(3, 50) + "</prompt>", 20);
  CHECK(check_forecast(fixture, request).cache.size() == 2);
  CHECK(check_forecast(fixture, request).cache.back().tokens == 48);
  check_forecast(fixture, EngineFixture::request(EngineFixture::tokens(1, 40)));
  check_forecast(fixture, EngineFixture::request(EngineFixture::tokens(1, 30)));
  CHECK(check_forecast(fixture, EngineFixture::request(EngineFixture::tokens(2, 30))).cache.empty());
}

// Random requests over more than fits, on device, host and disk.
TEST_CASE("every tier is foreseen", "[engine]") {
  const TemporaryDirectory directory;
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 400 * EngineFixture::kTokenBytes;
  options.tiers.host_bytes = 300 * EngineFixture::kTokenBytes;
  options.tiers.disk_path = directory.path();
  EngineFixture fixture(options);
  for (int number = 0; number < 6; ++number) {
    fixture.add_schema(schema(number, number % 2 == 0 ? "rooted" : "isolated"));
  }
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same each time
  std::map<SourceLabel, int> seen;
  for (int round = 0; round < 150; ++round) {
    const std::string imports = std::vector{"<a/>", "<a/><b/>", "<d/>", "<b><c/></b>"}[random() % 4];
    const std::string prompt =
        "<prompt schema='s" + std::to_string(random() % 6) + "'>" + imports +
        EngineFixture::words(static_cast<int>(random() % 20), 5 + static_cast<int>(random() % 30)) + "</prompt>";
    const Forecast made = check_forecast(fixture, fixture.request(prompt, 1 + static_cast<int>(random() % 9)));
    for (const CachePartInfo& part : made.cache) {
      ++seen[part.source];
    }
  }
  CHECK(seen[SourceLabel::kDevice] > 0);
  CHECK(seen[SourceLabel::kHost] > 0);
  CHECK(seen[SourceLabel::kDisk] > 0);
}

TEST_CASE("times are foreseen once something has been computed", "[engine]") {
  EngineFixture fixture;
  CHECK_FALSE(forecast(fixture, EngineFixture::request(EngineFixture::tokens(1, 40))).timing.has_value());
  fixture.run(EngineFixture::request(EngineFixture::tokens(1, 40)));
  const auto timing = forecast(fixture, EngineFixture::request(EngineFixture::tokens(2, 40))).timing;
  REQUIRE(timing.has_value());
  CHECK(timing->ttft_ms > 0);
  CHECK(timing->ttft_ms == timing->queue_ms + timing->load_ms + timing->prefill_ms);
}

TEST_CASE("what could never run is refused", "[engine]") {
  EngineFixture fixture;
  const auto made = fixture.engine->forecast(EngineFixture::request(EngineFixture::tokens(1, 30000)));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == ErrorCode::kTooLargeForCache);
  fixture.engine->drain(std::chrono::seconds(10));
}

}  // namespace
}  // namespace promptcached::engine
