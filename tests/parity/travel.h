// One schema and its prompts, in real text, that the parity tests share.
#pragma once

#include <string>
#include <vector>

namespace promptcached::parity {

// Everything PML has, in real text: root text and roles, parameters, nesting, unions with a default member, a module
// that is never cached, a scaffold.
inline std::string travel(const std::string& mode) {
  return R"(<schema name="travel" attention=")" + mode + R"(">
  <system>You are a careful travel planner who answers in two short sentences.</system>
  <user>
    <module name="trip-plan">
      Plan a trip of <param name="duration" len="5"/> days for <param name="who" len="4" scaffold="two old friends"/>,
      starting at the airport. The budget is modest, breakfast is included, and museums are closed on Mondays.
      <module name="pace">Keep the pace slow: no more than two sights a day, and a nap after lunch.</module>
      Mention the weather once.
    </module>
    The destination is described below.
    <union scaffold="maui">
      <module name="miami">Miami: beaches, art deco hotels along Ocean Drive, and heat.</module>
      <module name="maui">Maui: volcanoes, surf, sudden rain on the windward side, and a road of six hundred bends.
        <module name="hana">The road to Hana closes after landslides.</module>
      </module>
    </union>
    <module name="visa" cache="false">A visa is not needed for stays shorter than ninety days.</module>
    <module name="food">The guest does not eat fish, but likes noodles, papaya and very dark chocolate.</module>
    <scaffold modules="miami food"/>
</schema>)";
}

inline std::vector<std::string> prompts() {
  const auto prompt = [](const std::string& body) { return "<prompt schema=\"travel\">" + body + "</prompt>"; };
  return {
      prompt("What should I pack?</user>"),                                                         // root text alone
      prompt("<trip-plan duration=\"three\" who=\"my aunt\"/><maui/>Where should I swim?</user>"),  // short arguments
      prompt("<trip-plan/><miami/>Name one hotel.</user>"),                                         // missing arguments
      prompt("<trip-plan duration=\"one two three four five\"/>How long?</user>"),                  // an exact fit
      prompt("<food/><maui><hana/></maui><trip-plan><pace/></trip-plan>What is for lunch?</user>"),  // any order
      prompt("<miami/><food/>Where is dinner?</user>"),                                              // the scaffold
      prompt("<miami/>Also:<visa/><food/>Do we need papers?</user>"),  // text in a hole between imports; uncached
      prompt("<trip-plan/><food/>"),                                   // no new text at all
  };
}

// Prompts that begin alike and end differently, about a hundred tokens after the modules.
inline std::vector<std::string> turns() {
  const std::string alike =
      "We land on a Tuesday at noon and have to be back at the airport on Friday by nine in the evening. My friend "
      "walks "
      "with a stick, so steep stairs are out, but a gentle climb is welcome. We have seen enough churches for a year. "
      "Last time we ate very well in a small place behind the market, with four tables and no menu, and we would like "
      "to "
      "find something of that kind again. Please keep one afternoon free for letters, and do not send us anywhere that "
      "asks for a booking. ";
  const std::string open = "<prompt schema=\"travel\"><trip-plan duration=\"three\"/><maui/>" + alike;
  return {open + "What should we do on Wednesday?</user></prompt>",
          open + "Name the best beach for a slow walk.</user></prompt>",
          open + "What should we do on Wednesday, if it rains all day long?</user></prompt>"};
}

}  // namespace promptcached::parity
