// Registered schemas in a journal: what is saved and when, and what a failing disk leaves.
#include <atomic>
#include <map>
#include <mutex>

#include "tests/catch.h"
#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

class FakeJournal final : public SchemaJournal {
 public:
  Status save(const StoredSchema& schema) override {
    const std::lock_guard lock(mutex_);
    if (fails) {
      return make_error(ErrorCode::kStorageFailed, "no space");
    }
    schemas_[schema.name] = schema;
    ++saves;
    return {};
  }
  Status remove(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    if (fails) {
      return make_error(ErrorCode::kStorageFailed, "no space");
    }
    schemas_.erase(std::string(name));
    return {};
  }
  std::map<std::string, StoredSchema> schemas() const {
    const std::lock_guard lock(mutex_);
    return schemas_;
  }

  std::atomic<bool> fails{false};
  std::atomic<int> saves{0};

 private:
  mutable std::mutex mutex_;
  std::map<std::string, StoredSchema> schemas_;
};

struct Fixture {
  Fixture() : engine(options()) {}
  EngineOptions options() const {
    EngineOptions made = EngineFixture::default_options();
    made.schema_journal = journal;
    return made;
  }
  SchemaRegistry& registry() { return engine.engine->schemas(); }

  std::shared_ptr<FakeJournal> journal = std::make_shared<FakeJournal>();
  EngineFixture engine;
};

const std::string kOld = "<schema name=\"s\" priority=\"2\"><module name=\"m\">w1 w2</module></schema>";
const std::string kNew =
    "<schema name=\"s\"><module name=\"m\">w3 w4 w5</module><module name=\"n\">w6</module></schema>";

RetentionPatch pin_patch() {
  RetentionPatch patch;
  patch.pin = true;
  return patch;
}
RetentionPatch ttl_patch(double seconds) {
  RetentionPatch patch;
  patch.ttl_seconds.emplace(seconds);
  return patch;
}
RetentionPatch priority_patch(int priority) {
  RetentionPatch patch;
  patch.priority = priority;
  return patch;
}

TEST_CASE("a registration succeeds once it is saved") {
  Fixture f;
  f.engine.add_schema(kOld);
  const StoredSchema stored = f.journal->schemas().at("s");
  CHECK(stored.source == kOld);
  CHECK(stored.retention.schema.priority == 2);
  REQUIRE(stored.retention.modules.size() == 2);
  CHECK(stored.retention.modules[1].first == "m");
  CHECK(stored.retention.modules[1].second.priority == 2);
  f.engine.add_schema(kNew);
  CHECK(f.journal->schemas().at("s").source == kNew);
  REQUIRE(f.registry().remove("s").ok());
  CHECK(f.journal->schemas().empty());
}

TEST_CASE("one that nobody waits for is saved as well") {
  Fixture f;
  RegisterOptions options;
  options.wait = false;
  REQUIRE(f.registry().register_schema(kOld, options).ok());
  f.registry().wait_until_encoded("s");
  f.registry().wait_until_encoded("other");
  CHECK(f.registry().status("s")->state == SchemaState::kReady);
  CHECK(f.journal->schemas().size() == 1);
}

TEST_CASE("changed retention is saved") {
  Fixture f;
  f.engine.add_schema(kOld);
  REQUIRE(f.registry().patch("s", ttl_patch(60), {{"m", pin_patch()}}).ok());
  StoredSchema stored = f.journal->schemas().at("s");
  CHECK(stored.retention.schema.ttl_seconds == 60.0);
  CHECK_FALSE(stored.retention.schema.pin);
  CHECK(stored.retention.modules[1].second.pin);
  CHECK(stored.retention.modules[1].second.ttl_seconds == 60.0);
  RegisterOptions options;
  options.pin = true;
  REQUIRE(f.registry().register_schema(kOld, options)->unchanged);
  stored = f.journal->schemas().at("s");
  CHECK(stored.retention.schema.pin);
  CHECK(stored.retention.schema.ttl_seconds == 60.0);
}

TEST_CASE("what comes back has the retention it had") {
  Fixture f;
  f.engine.add_schema(kOld);
  REQUIRE(f.registry().patch("s", priority_patch(5), {{"m", pin_patch()}, {"m", priority_patch(9)}}).ok());
  const StoredSchema stored = f.journal->schemas().at("s");
  Fixture again;
  RegisterOptions options;
  options.retention = stored.retention;
  options.retention->modules.emplace_back("no-such-module", pml::RetentionPolicy{});
  REQUIRE(again.registry().register_schema(stored.source, options).ok());
  const Result<SchemaStatus> status = again.registry().status("s");
  CHECK(status->retention.priority == 5);
  CHECK(status->modules[0].retention.priority == 9);
  CHECK(status->modules[0].retention.pin);
}

TEST_CASE("what comes back and is changed before it is encoded is saved at once") {
  Fixture f;
  f.journal->fails = true;  // the journal is asked: that it cannot shows that it was
  RegisterOptions options;
  options.retention.emplace();
  options.wait = false;
  REQUIRE(f.registry().register_schema(kOld, options).ok());
  CHECK_FALSE(f.registry().patch("s", pin_patch(), {}).ok());
}

TEST_CASE("what cannot be saved changes nothing") {
  Fixture f;
  f.engine.add_schema(kOld);
  f.journal->fails = true;
  SECTION("new content") {
    const auto outcome = f.registry().register_schema(kNew, {});
    REQUIRE_FALSE(outcome.ok());
    CHECK(outcome.error().code == ErrorCode::kStorageFailed);
  }
  SECTION("a new schema") {
    CHECK_FALSE(f.registry().register_schema("<schema name=\"t\">w1</schema>", {}).ok());
    CHECK(f.registry().find("t").error().code == ErrorCode::kUnknownSchema);
  }
  SECTION("a new schema that nobody waits for") {
    RegisterOptions options;
    options.wait = false;
    REQUIRE(f.registry().register_schema("<schema name=\"t\">w1</schema>", options).ok());
    f.registry().wait_until_encoded("t");
    const Result<SchemaStatus> status = f.registry().status("t");
    CHECK(status->state == SchemaState::kFailed);
    CHECK(status->failure->code == ErrorCode::kStorageFailed);
  }
  SECTION("retention") { CHECK_FALSE(f.registry().patch("s", pin_patch(), {}).ok()); }
  SECTION("retention of the same content") {
    RegisterOptions options;
    options.pin = true;
    CHECK_FALSE(f.registry().register_schema(kOld, options).ok());
  }
  SECTION("deletion") { CHECK(f.registry().remove("s").error().code == ErrorCode::kStorageFailed); }
  const Result<SchemaStatus> status = f.registry().status("s");
  REQUIRE(status.ok());
  CHECK(status->version->schema->source == kOld);
  CHECK(status->state == SchemaState::kReady);
  CHECK_FALSE(status->retention.pin);
  CHECK(f.journal->schemas().at("s").source == kOld);
  // And it can be used.
  const GenerateRequest request = f.engine.request("<prompt schema=\"s\"><m/>w9</prompt>");
  CHECK(f.engine.run(request).ids() == f.engine.expected(request));
}

TEST_CASE("a registration that cannot be encoded is not saved") {
  Fixture f;
  const std::string text = EngineFixture::words(1, 30000);  // more than the pool holds
  CHECK_FALSE(
      f.registry().register_schema("<schema name=\"s\"><module name=\"m\">" + text + "</module></schema>", {}).ok());
  CHECK(f.journal->schemas().empty());
  CHECK(f.journal->saves == 0);
}

}  // namespace
}  // namespace promptcached::engine
