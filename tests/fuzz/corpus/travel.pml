<schema name="s">
  <system>You are a careful travel planner.</system>
  <user>
    <module name="trip">
      Plan a trip of <param name="duration" len="4"/> days.
      <module name="detail">In detail.</module>
    </module>
    <union>
      <module name="miami">Miami: beaches.</module>
      <module name="maui" cache="false">Maui: volcanoes.</module>
    </union>
</schema>
====
<prompt schema="s">
  <trip duration="three"><detail/></trip>
  <maui/>
  Where should I swim?</user>
</prompt>
