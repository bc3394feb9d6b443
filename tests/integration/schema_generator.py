"""Random JSON schemas, the same for the same seed, that every answer of bounded length can satisfy."""

import random

WORDS = ["red", "green", "blue", "Paris", "a b", 'say "hi"', "naïve", "x_1", "0", "tab\there", "line\nbreak", "{", "日本"]
NAMES = ["name", "id", "size", "color", "items", "kind", "next value", "é", "a/b", "on", "count", "x-y"]
PATTERNS = ["^[a-c]{2,5}$", "^[A-Z][a-z]{1,4}$", "^\\d{3}-\\d{2}$", "^(yes|no|maybe)$", "^x+y?$"]
FORMATS = ["date", "uuid", "ipv4"]


class SchemaGenerator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self):
        """At the top an object, with what others refer to."""
        definitions = {f"d{i}": self.value(2) for i in range(self.random.randint(0, 2))}
        schema = self.object(0, list(definitions))
        if definitions:
            schema["$defs"] = definitions
        return schema

    def value(self, depth, references=()):
        kinds = ["string", "string", "integer", "boolean", "null", "enum", "const", "pattern", "format", "union"]
        if depth < 3:
            kinds += ["object", "object", "array", "array", "any_of"]
        if references:
            kinds += ["reference"]
        kind = self.random.choice(kinds)
        return getattr(self, kind)(depth, references)

    def object(self, depth, references=()):
        names = self.random.sample(NAMES, self.random.randint(1, 4 - depth))
        required = [name for name in names if self.random.random() < 0.7]
        schema = {
            "type": "object",
            "properties": {name: self.value(depth + 1, references) for name in names},
            "required": required,
            "additionalProperties": False,
        }
        if self.random.random() < 0.2:
            schema["description"] = "of no consequence"
        return schema

    def array(self, depth, references=()):
        least = self.random.randint(0, 2)
        schema = {
            "type": "array",
            "items": self.value(depth + 1, references),
            "minItems": least,
            "maxItems": least + self.random.randint(0, 2),
        }
        if self.random.random() < 0.2:
            schema = {
                "type": "array",
                "prefixItems": [self.value(depth + 1, references) for _ in range(2)],
                "items": False,
                "minItems": 2,
            }
        return schema

    def any_of(self, depth, references=()):
        return {"anyOf": [self.value(depth + 1, references) for _ in range(self.random.randint(2, 3))]}

    def reference(self, depth, references=()):
        return {"$ref": f"#/$defs/{self.random.choice(references)}"}

    def string(self, depth, references=()):
        least = self.random.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randint(0, 9)}

    def integer(self, depth, references=()):
        low = self.random.randint(-50, 50)
        schema = {"type": "integer", "minimum": low, "maximum": low + self.random.randint(0, 500)}
        if self.random.random() < 0.2:
            schema["exclusiveMaximum"] = schema.pop("maximum") + 1
        return schema

    def boolean(self, depth, references=()):
        return {"type": "boolean"}

    def null(self, depth, references=()):
        return {"type": "null"}

    def enum(self, depth, references=()):
        values = self.random.sample(WORDS, self.random.randint(1, 4)) + self.random.sample([1, -2.5, None, True, ["a", 1], {"b": None}], 2)
        return {"enum": values}

    def const(self, depth, references=()):
        return {"const": self.random.choice([*WORDS, 7, 1.5, False, None, [1, [2]], {"a": {"b": "c"}}])}

    def pattern(self, depth, references=()):
        pattern = self.random.choice(PATTERNS)
        schema = {"type": "string", "pattern": pattern}
        if pattern == "^x+y?$":
            schema["maxLength"] = 6
        return schema

    def format(self, depth, references=()):
        return {"type": "string", "format": self.random.choice(FORMATS)}

    def union(self, depth, references=()):
        return {"type": ["null", "boolean", "string"], "maxLength": 8}
