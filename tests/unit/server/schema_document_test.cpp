#include "server/schema_document.h"

#include <string>

#include "tests/catch.h"

namespace promptcached::server {
namespace {

engine::StoredSchema travel() {
  engine::StoredSchema schema;
  schema.name = "travel";
  schema.source = "<schema name=\"travel\">\n  Zoë &amp; \"Ωmega\"\t<module name='miami'>Sun.</module></schema>";
  schema.retention.schema = {.pin = true, .ttl_seconds = 0.1, .priority = -7};
  schema.retention.modules = {{"#root", {}}, {"miami", {.pin = false, .ttl_seconds = 3600, .priority = 2147483647}}};
  return schema;
}

bool same(const pml::RetentionPolicy& a, const pml::RetentionPolicy& b) {
  return a.pin == b.pin && a.ttl_seconds == b.ttl_seconds && a.priority == b.priority;
}

std::string refusal(const std::string& document) {
  const Result<engine::StoredSchema> schema = read_schema_document(document);
  return schema.ok() ? "" : schema.error().message;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a schema comes out of its document as it went in", "[server]") {
  const engine::StoredSchema schema = travel();
  const Result<engine::StoredSchema> read = read_schema_document(schema_document(schema));
  REQUIRE(read.ok());
  CHECK(read->name == schema.name);
  CHECK(read->source == schema.source);
  CHECK(same(read->retention.schema, schema.retention.schema));
  REQUIRE(read->retention.modules.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(read->retention.modules[i].first == schema.retention.modules[i].first);
    CHECK(same(read->retention.modules[i].second, schema.retention.modules[i].second));
  }
}

TEST_CASE("a document cut short at any place is refused", "[server]") {
  const std::string document = schema_document(travel());
  for (std::size_t size = 0; size < document.size(); ++size) {
    INFO("the first " << size << " bytes");
    CHECK_FALSE(refusal(document.substr(0, size)).empty());
  }
}

TEST_CASE("a document with any bit turned over is refused", "[server]") {
  const std::string document = schema_document(travel());
  for (std::size_t bit = 0; bit < 8 * document.size(); ++bit) {
    std::string damaged = document;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    INFO("bit " << bit);
    CHECK_FALSE(refusal(damaged).empty());
  }
}

TEST_CASE("what is no document of this version is told apart", "[server]") {
  CHECK(contains(refusal("<schema name='travel'>Text</schema>"), "no schema of promptcached's"));
  CHECK(contains(refusal("{\"name\": \"travel\"}"), "no schema of promptcached's"));
  std::string later = schema_document(travel());
  later.replace(later.find(" 1 "), 3, " 2 ");
  CHECK(contains(refusal(later), "another version"));
  CHECK(contains(refusal(schema_document(travel()) + "x"), "checksum"));
}

}  // namespace
}  // namespace promptcached::server
