<schema name="s" attention="contextual" pin="true" ttl="60" priority="2"><scaffold modules="b u/v a"/>
root<module name="a">x<param name="p" len="2" scaffold="y"/>z</module>
<union scaffold="d"><module name="d">1<module name="e">2</module></module><module name="u">3<union><module name="v">4 5</module></union></module></union>
tail<module name="b">w</module><user>q</user></schema>
====
<prompt schema="s"><b/>t<u><v/></u><a p="k l"/></prompt>
