<schema name="s"><module name="m">a &nope; <b></module></schema>
====
<prompt schema="s"><m></prompt>