// What /openapi.json says of a route beyond what the list of routes does: words, bodies, answers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "api/json.h"
#include "api/json_reader.h"

namespace promptcached::api {

struct Operation {
  struct Answer {
    int status;
    std::string_view schema;  // of `components`, as JSON; empty: no body
    bool streams = false;     // it may be text/event-stream as well
  };

  std::string_view method;
  std::string_view path;
  std::string_view summary;
  std::vector<Answer> answers;
  std::vector<int> refusals = {};                   // beyond those that follow from the route (docs/api.md, Errors)
  JsonFields (*body)() = nullptr;                   // of a JSON body; null: there is none
  std::vector<std::string_view> other_bodies = {};  // components: other forms that the JSON body may have
  bool pml = false;                                 // PML is taken as well
  JsonFields (*query)() = nullptr;                  // null: nothing is read from it
  Json (*details)() = nullptr;                      // of the fields, in body and query (api/spec/field_schema.h)
  std::string_view header = {};                     // a parameter of `components`
};

// One for each route, in any order.
std::span<const Operation> operations();

}  // namespace promptcached::api
