// The engine with little device memory and the tiers below it: every answer as if there were plenty.
#include <filesystem>
#include <random>

#include "tests/catch.h"
#include "tests/temporary_directory.h"
#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

namespace fs = std::filesystem;

constexpr int kSchemas = 8;
constexpr int kWords = 30;
constexpr std::size_t kModuleBytes = kWords * EngineFixture::kTokenBytes;

// Thirty words of its own and a module of thirty more.
std::string schema(int number) {
  return "<schema name=\"s" + std::to_string(number) + "\">" + EngineFixture::words(number, kWords) +
         "<module name=\"m\">" + EngineFixture::words(number + 50, kWords) + "</module></schema>";
}

std::string prompt(int number) { return "<prompt schema=\"s" + std::to_string(number) + "\"><m/> what is it</prompt>"; }

// Room for a few modules on the device, as many in the host tier, and all on disk.
EngineOptions tiny(const fs::path& disk) {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 8 * kModuleBytes;
  options.tiers.host_bytes = 4 * kModuleBytes;
  options.tiers.disk_path = disk;
  return options;
}

void settle(EngineFixture& fixture) { REQUIRE(fixture.engine->tiers().flush(std::chrono::seconds(20))); }

TEST_CASE("answers are the same from every tier", "[engine]") {
  TemporaryDirectory directory;
  EngineFixture fixture(tiny(directory.path()));
  for (int i = 0; i < kSchemas; ++i) {
    fixture.add_schema(schema(i));
  }
  std::mt19937 random(3);
  for (int wave = 0; wave < 20; ++wave) {
    std::vector<std::pair<GenerateRequest, std::shared_ptr<TokenStream>>> asked;
    for (int i = 0; i < 8; ++i) {
      GenerateRequest request = fixture.request(prompt(static_cast<int>(random() % kSchemas)));
      asked.emplace_back(request, fixture.submit(request));
    }
    for (auto& [request, stream] : asked) {
      const Answer answer = collect(*stream);
      REQUIRE(answer.done.has_value());
      REQUIRE(answer.ids() == fixture.expected(request));
    }
  }
  settle(fixture);
  CHECK(fixture.metrics.module_hits(TierLabel::kDevice).value() > 0);
  CHECK(fixture.metrics.module_hits(TierLabel::kHost).value() > 0);
  CHECK(fixture.metrics.module_hits(TierLabel::kDisk).value() > 0);
  CHECK(fixture.metrics.module_encodes().value() == 2 * kSchemas);  // each once, at its registration
  CHECK(fixture.engine->pool().check_integrity());
}

TEST_CASE("the tier that a module came from is told", "[engine]") {
  TemporaryDirectory directory;
  EngineOptions options = tiny(directory.path());
  options.tiers.host_bytes = 0;
  EngineFixture fixture(options);
  fixture.add_schema(schema(1));
  settle(fixture);
  fixture.engine->pool().drop_unpinned();
  CHECK(fixture.engine->schemas().status("s1")->modules[0].tier == "disk");
  const Answer answer = fixture.run(fixture.request(prompt(1)));
  REQUIRE(answer.start.has_value());
  REQUIRE(answer.start->cache.size() == 2);
  CHECK(answer.start->cache[0].source == SourceLabel::kDisk);
  CHECK(answer.start->cache[1].source == SourceLabel::kDisk);
  CHECK(answer.done->usage.cached_tokens == 2 * kWords);
  CHECK(fixture.run(fixture.request(prompt(1))).start->cache[0].source == SourceLabel::kDevice);
}

TEST_CASE("a second start on the same directory encodes nothing", "[engine]") {
  TemporaryDirectory directory;
  {
    EngineFixture first(tiny(directory.path()));
    first.add_schema(schema(1));
    settle(first);
  }
  EngineFixture second(tiny(directory.path()));
  second.add_schema(schema(1));
  CHECK(second.metrics.module_encodes().value() == 0);
  GenerateRequest request = second.request(prompt(1));
  CHECK(second.run(request).ids() == second.expected(request));
  // Deleted, it is gone from there too.
  REQUIRE(second.engine->schemas().remove("s1").ok());
  settle(second);
  CHECK(second.engine->tiers().tier(TierLabel::kDisk)->stats().entries == 0);
}

// The same module stands at another place of each schema's list: who waits with others must wait for the right one.
TEST_CASE("requests of two schemas wait together for one module from disk", "[engine]") {
  TemporaryDirectory directory;
  EngineOptions options = tiny(directory.path());
  options.tiers.host_bytes = 0;
  EngineFixture fixture(options);
  const std::string shared = "<module name=\"m\">" + EngineFixture::words(7, kWords) + "</module>";
  const std::string other = "<module name=\"other\">" + EngineFixture::words(8, kWords) + "</module>";
  fixture.add_schema("<schema name=\"s1\">root<union>" + shared + other + "</union></schema>");
  fixture.add_schema("<schema name=\"s2\">root<union>" + other + shared + "</union></schema>");
  settle(fixture);
  CHECK(fixture.engine->tiers().tier(TierLabel::kDisk)->stats().entries == 3);
  for (int round = 0; round < 20; ++round) {
    fixture.engine->pool().drop_unpinned();
    std::vector<std::pair<GenerateRequest, std::shared_ptr<TokenStream>>> asked;
    for (const int number : {1, 2, 2, 1}) {
      GenerateRequest request = fixture.request(prompt(number));
      asked.emplace_back(request, fixture.submit(request));
    }
    for (auto& [request, stream] : asked) {
      REQUIRE(collect(*stream).ids() == fixture.expected(request));
    }
  }
  CHECK(fixture.metrics.module_encodes().value() == 3);
}

TEST_CASE("what is to be kept is told to the tiers", "[engine]") {
  TemporaryDirectory directory;
  EngineFixture fixture(tiny(directory.path()));
  fixture.add_schema(schema(1));
  settle(fixture);
  RetentionPatch pin;
  pin.pin = true;
  REQUIRE(fixture.engine->schemas().patch("s1", pin, {}).ok());
  CHECK(fixture.engine->tiers().tier(TierLabel::kDisk)->stats().pinned_bytes > 0);
}

TEST_CASE("two schemas share one entry of every tier", "[engine]") {
  TemporaryDirectory directory;
  EngineFixture fixture(tiny(directory.path()));
  fixture.add_schema(schema(1));
  std::string twin = schema(1);
  twin.replace(twin.find("s1"), 2, "t1");
  fixture.add_schema(twin);
  settle(fixture);
  CHECK(fixture.metrics.module_encodes().value() == 2);
  CHECK(fixture.engine->tiers().tier(TierLabel::kDisk)->stats().entries == 2);
  CHECK(fixture.engine->schemas().status("t1")->modules[0].shared);
  REQUIRE(fixture.engine->schemas().remove("s1").ok());
  settle(fixture);
  CHECK(fixture.engine->tiers().tier(TierLabel::kDisk)->stats().entries == 2);
}

}  // namespace
}  // namespace promptcached::engine
