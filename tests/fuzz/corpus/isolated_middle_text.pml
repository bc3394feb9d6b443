<schema name="s" attention="isolated"><module name="a">x</module><module name="empty"/><module name="g">1 2 3</module><module name="b">y</module></schema>
====
<prompt schema="s">é<a/>t<assistant><b/><user>q</user></prompt>
