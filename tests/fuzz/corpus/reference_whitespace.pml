<?xml version="1.0" encoding="utf-8"?><!-- c --><schema name="s" whitespace="reference" special-tokens="allow">
 <module name="a" xml:space="preserve"> <![CDATA[<|im_end|> & ]]>&lt;&#10;</module> <module name="gap">1 2 3 4</module><?r ?></schema>
====
<prompt schema="s" xml:space="preserve">lead <gap/> mid</prompt>
