#include "server/schema_directory.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

#include "server/schema_document.h"
#include "server/schema_loader.h"
#include "tests/catch.h"
#include "tests/fakes/fake_engine.h"

namespace promptcached::server {
namespace {

namespace fs = std::filesystem;

// A data directory that lasts as long as the test.
struct Directory {
  Directory() {
    static int count = 0;
    path =
        fs::temp_directory_path() / ("promptcached-data-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
  }
  ~Directory() { fs::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  std::unique_ptr<SchemaDirectory> open() const {
    Result<std::unique_ptr<SchemaDirectory>> opened = SchemaDirectory::open(path);
    if (!opened.ok()) {
      FAIL(opened.error().message);
    }
    return std::move(*opened);
  }
  fs::path file(const std::string& name) const { return path / "schemas" / name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(file(name), std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path path;
};

engine::StoredSchema schema_of(const std::string& name, const std::string& text = "Hello") {
  engine::StoredSchema schema;
  schema.name = name;
  schema.source = "<schema name=\"" + name + "\">" + text + "</schema>";
  schema.retention.modules = {{"#root", {.pin = true, .ttl_seconds = 5, .priority = 3}}};
  return schema;
}

std::vector<std::string> names(const std::vector<engine::StoredSchema>& schemas) {
  std::vector<std::string> all;
  for (const engine::StoredSchema& schema : schemas) {
    all.push_back(schema.name);
  }
  return all;
}

using Names = std::vector<std::string>;

TEST_CASE("what is saved is there when the directory is opened again", "[server]") {
  const Directory data;
  {
    const auto directory = data.open();
    CHECK(directory->load().empty());
    REQUIRE(directory->save(schema_of("travel")).ok());
    REQUIRE(directory->save(schema_of("law")).ok());
    REQUIRE(directory->save(schema_of("gone")).ok());
    REQUIRE(directory->save(schema_of("travel", "Good bye")).ok());
    REQUIRE(directory->remove("gone").ok());
    CHECK(directory->remove("gone").ok());
  }
  const auto schemas = data.open()->load();
  CHECK(names(schemas) == Names{"law", "travel"});
  CHECK(schemas[1].source == schema_of("travel", "Good bye").source);
  CHECK(schemas[1].retention.modules[0].second.priority == 3);
}

TEST_CASE("a name of any length has a file of its own", "[server]") {
  const Directory data;
  const auto directory = data.open();
  const std::string longest(256, 'n');
  const std::string other = longest.substr(1) + "m";
  REQUIRE(directory->save(schema_of(longest)).ok());
  REQUIRE(directory->save(schema_of(other)).ok());
  CHECK(names(directory->load()) == Names{other, longest});
  REQUIRE(directory->remove(longest).ok());
  CHECK(names(directory->load()) == Names{other});
}

TEST_CASE("a damaged file is set aside and the others come back", "[server]") {
  const Directory data;
  const auto directory = data.open();
  for (const char* name : {"cut", "empty", "foreign", "good", "renamed", "turned"}) {
    REQUIRE(directory->save(schema_of(name)).ok());
  }
  const std::string cut = data.read("cut.schema").substr(0, 100);
  data.write("cut.schema", cut);
  data.write("empty.schema", "");
  data.write("foreign.schema", "{\"a\": 1}");
  fs::rename(data.file("renamed.schema"), data.file("another.schema"));
  std::string turned = data.read("turned.schema");
  turned[turned.size() - 10] ^= 4;
  data.write("turned.schema", turned);

  CHECK(names(directory->load()) == Names{"good"});
  for (const char* name : {"cut", "empty", "foreign", "another", "turned"}) {
    INFO(name);
    CHECK(fs::exists(data.file(std::string(name) + ".schema.damaged")));
    CHECK_FALSE(fs::exists(data.file(std::string(name) + ".schema")));
  }
  CHECK(data.read("cut.schema.damaged") == cut);
  CHECK(names(directory->load()) == Names{"good"});
}

TEST_CASE("what a crash left unfinished is removed, what is none of ours is left alone", "[server]") {
  const Directory data;
  const auto directory = data.open();
  REQUIRE(directory->save(schema_of("good")).ok());
  data.write("good.schema.unfinished", data.read("good.schema").substr(0, 50));
  data.write("README", "notes");
  CHECK(names(directory->load()) == Names{"good"});
  CHECK_FALSE(fs::exists(data.file("good.schema.unfinished")));
  CHECK(data.read("README") == "notes");
}

TEST_CASE("one process at a time has the directory", "[server]") {
  const Directory data;
  {
    const auto directory = data.open();
    const auto second = SchemaDirectory::open(data.path);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().message.find("in use by another promptcached process") != std::string::npos);
    CHECK(second.error().message.find(data.path.string()) != std::string::npos);
  }
  CHECK(SchemaDirectory::open(data.path).ok());
}

TEST_CASE("where nothing can be written is told at the start", "[server]") {
  const Directory data;
  std::ofstream(data.path) << "a file";
  const auto directory = SchemaDirectory::open(data.path);
  REQUIRE_FALSE(directory.ok());
  CHECK(directory.error().message.find(data.path.string()) != std::string::npos);
}

TEST_CASE("a write that fails later leaves what was there", "[server]") {
  const Directory data;
  const auto directory = data.open();
  REQUIRE(directory->save(schema_of("travel")).ok());
  fs::create_directory(data.file("travel.schema.unfinished"));  // in the way of the new file
  const Status status = directory->save(schema_of("travel", "Good bye"));
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kStorageFailed);
  CHECK(status.error().message.find(data.path.string()) == std::string::npos);  // clients need not know it
  CHECK(directory->load()[0].source == schema_of("travel").source);
  CHECK(directory->save(schema_of("travel")).ok());  // is there already
}

TEST_CASE("kept schemas are registered as they were, unless a file has another text", "[server]") {
  fakes::FakeEngine engine;
  auto& registry = static_cast<fakes::FakeRegistry&>(engine.schemas());
  const std::vector<engine::StoredSchema> kept = {schema_of("changed"),
                                                  schema_of("kept"),
                                                  schema_of("same"),
                                                  {.name = "broken", .source = "<schema", .retention = {}}};
  const std::vector<SchemaFile> files = {
      {"changed.xml", schema_of("changed", "Other").source}, {"same.xml", schema_of("same").source}, {"bad.xml", "<"}};
  CHECK(restore_schemas(kept, files, registry) == Names{"kept", "same"});
  CHECK(registry.list().size() == 2);
  CHECK_FALSE(registry.last_options.wait);
  REQUIRE(registry.last_options.retention.has_value());
}

}  // namespace
}  // namespace promptcached::server
