package celrule_test

import "testing"

// TestRules_Conditions is the language by example: a condition, arguments, and
// what comes of it.
func TestRules_Conditions(t *testing.T) {
	tests := []struct{ when, args, want string }{
		{``, `{}`, "yes"},
		{`  `, `{}`, "yes"},
		{`true`, `{}`, "yes"},
		{`false`, `{}`, "no"},
		// arguments
		{`args.command.startsWith("git push")`, `{"command":"git push origin"}`, "yes"},
		{`args.command.startsWith("git push")`, `{"command":"git status"}`, "no"},
		{`args.command.startsWith("git push")`, `{}`, "error: no such key: command"},
		{`args.command.startsWith("git push")`, `{"command":7}`, "error: no such overload"},
		{`args["dry-run"]`, `{"dry-run":true}`, "yes"},
		{`args.flag`, `{"flag":"yes"}`, "error: the condition is a string, not true or false"},
		{`args.flag`, `{"flag":null}`, "error: the condition is a null_type, not true or false"},
		{`has(args.path)`, `{}`, "no"},
		{`has(args.path)`, `{"path":null}`, "yes"},
		{`has(args.path) && args.path == "x"`, `{}`, "no"},
		{`"path" in args`, `{"path":"x"}`, "yes"},
		{`args.?path.orValue("") == ""`, `{}`, "yes"},
		{`args.?deep.?er.orValue(3) == 4`, `{"deep":{"er":4}}`, "yes"},
		{`args.deep.er == 4`, `{"deep":{}}`, "error: no such key: er"},
		{`args == {}`, `{}`, "yes"},
		{`size(args) > 2`, `{"a":1,"b":2,"c":3}`, "yes"},
		{`args.exists(k, k.startsWith("x_"))`, `{"a":1,"x_b":2}`, "yes"},
		// numbers
		{`args.n > 10`, `{"n":11}`, "yes"},
		{`args.n > 10`, `{"n":10.5}`, "yes"},
		{`args.n > 10.5`, `{"n":10}`, "no"},
		{`args.n == 10`, `{"n":10.0}`, "yes"},
		{`args.n % 2 == 0`, `{"n":1e3}`, "yes"},
		{`args.n > 9223372036854775807`, `{"n":9223372036854775808}`, "yes"},
		{`args.n == 18446744073709551615u`, `{"n":18446744073709551615}`, "yes"},
		{`args.n > 1`, `{"n":18446744073709551616}`, "error: a number of the arguments is too large for rules"},
		{`args.m > 1`, `{"m":2,"n":1e999}`, "yes"},
		{`args.n > 1`, `{"n":1e999}`, "error: a number of the arguments is too large for rules"},
		{`args.list.exists(x, x > 1)`, `{"list":[1e999]}`, "error: a number of the arguments is too large for rules"},
		{`args.n > 1`, `{"n":1e300}`, "yes"},
		{`args.n + 1 > 0`, `{"n":9223372036854775807}`, "error: integer overflow"},
		{`args.n / args.m > 1`, `{"n":1,"m":0}`, "error: division by zero"},
		{`args.n > 1`, `{"n":"2"}`, "error: no such overload"},
		{`int(args.n) > 1`, `{"n":"2"}`, "yes"},
		// lists
		{`args.files.exists(f, f.startsWith("/etc"))`, `{"files":["/tmp/x","/etc/passwd"]}`, "yes"},
		{`args.files.exists(f, f.startsWith("/etc"))`, `{"files":[]}`, "no"},
		{`args.files.exists(f, f.startsWith("/etc"))`, `{"files":[1,"/etc/passwd"]}`, "yes"},
		{`args.files.exists(f, f.startsWith("/etc"))`, `{"files":[1,"/tmp"]}`, "error: no such overload"},
		{`args.files.all(f, ["/ws/", "/tmp/"].exists(p, f.startsWith(p)))`, `{"files":["/ws/a","/tmp/b"]}`, "yes"},
		{`!args.files.all(f, f.startsWith("/ws/"))`, `{"files":["/ws/a",7,"/etc"]}`, "yes"},
		{`args.to in ["a@x.org", "b@x.org"]`, `{"to":"c@x.org"}`, "no"},
		{`args.list.filter(x, x > 2).map(x, x * 2) == [6, 8]`, `{"list":[1,2,3,4]}`, "yes"},
		{`args.list[3]`, `{"list":[true]}`, "error: index out of bounds: 3"},
		{`args.a + args.b == [1, 2]`, `{"a":[1],"b":[2]}`, "yes"},
		{`args.x in args.list`, `{"x":2,"list":[1,2]}`, "yes"},
		{`args.x in args.list`, `{"x":2,"list":7}`, "error: no such overload"},
		{`args.a == args.b`, `{"a":{"x":[1,"y"]},"b":{"x":[1,"y"]}}`, "yes"},
		{`args.a != args.b`, `{"a":{"x":[1,"y"]},"b":{"x":[1,"z"]}}`, "yes"},
		// texts
		{`args.s.lowerAscii() == "delete ä"`, `{"s":"DELETE ä"}`, "yes"},
		{`args.s.upperAscii().trim() == "X"`, `{"s":" x\n"}`, "yes"},
		{`args.s.split("/")[0] == "src"`, `{"s":"src/a/b"}`, "yes"},
		{`args.s.split("", 2) == ["é", "a"]`, `{"s":"éa"}`, "yes"},
		{`args.s.replace("a", "bb", 1) == "bbna"`, `{"s":"ana"}`, "yes"},
		{`args.s.replace("a", "") == "n"`, `{"s":"ana"}`, "yes"},
		{`args.s.substring(1, 2) == "é"`, `{"s":"aéz"}`, "yes"},
		{`args.s.substring(2) == "z"`, `{"s":"aéz"}`, "yes"},
		{`args.s.substring(4) == ""`, `{"s":"aéz"}`, "error: index out of range: 4"},
		{`args.s.substring(2, 1) == ""`, `{"s":"aéz"}`, "error: invalid substring range. start: 2, end: 1"},
		{`args.s.charAt(1) == "é" && args.s.charAt(3) == ""`, `{"s":"aéz"}`, "yes"},
		{`args.s.indexOf("z") == 2 && args.s.indexOf("a", 1) == -1`, `{"s":"aéz"}`, "yes"},
		{`args.s.lastIndexOf("a") == 3`, `{"s":"aéza"}`, "yes"},
		{`args.s.lastIndexOf("a", 2) == 0 && args.s.lastIndexOf("za", 2) == 2 && args.s.lastIndexOf("a", 4) == -1`, `{"s":"aéza"}`, "yes"},
		{`args.s.lastIndexOf("", 2) == 2 && args.s.lastIndexOf("", 9) == 4 && args.s.indexOf("", 9) == 4`, `{"s":"aéza"}`, "yes"},
		{`args.s.lastIndexOf("a", -1) == 0`, `{"s":"aéza"}`, "error: index out of range: -1"},
		{`["", "a", ""].join(",") == ",a,"`, `{}`, "yes"},
		{`args.list.join(",") == "a,b"`, `{"list":["a","b"]}`, "yes"},
		{`args.list.join() == "ab"`, `{"list":["a",1]}`, "error: unsupported type conversion from 'int' to string"},
		{`args.s.matches("^rm\\s+-[a-z]*r")`, `{"s":"rm  -fr /"}`, "yes"},
		{`(args.s + "!").endsWith("?!")`, `{"s":"what?"}`, "yes"},
		{`size(args.s) == 1`, `{"s":"é"}`, "yes"},
		// what is known besides
		{`tool == "exec_shell" && user == "alice" && agent == "default"`, `{}`, "yes"},
		{`effect == "non_idempotent_write"`, `{}`, "yes"},
		{`effect in ["read_only", "idempotent_write"]`, `{}`, "no"},
		{`admin`, `{}`, "no"},
		{`"ops" in roles && !("ops" in groups)`, `{}`, "yes"},
		{`trust == "member" && trust != "unknown"`, `{}`, "yes"},
		{`run == "run_1" && session == "ses_1" && depth == 1`, `{}`, "yes"},
		{`tainted || size(taint) > 0`, `{}`, "no"},
		{`targets.exists(t, t.kind == "host" && !t.write)`, `{}`, "yes"},
		{`targets.exists(t, t.write && t.name.startsWith(workspace + "/src/"))`, `{}`, "yes"},
		{`targets.filter(t, t.write).size() == 1`, `{}`, "yes"},
		// an error does not count where the rest decides already
		{`args.missing == 1 || true`, `{}`, "yes"},
		{`false && args.missing == 1`, `{}`, "no"},
		{`tool == "read_file" && args.path == "x"`, `{}`, "no"},
		{`args.missing == 1 ? true : false`, `{}`, "error: no such key: missing"},
		{`timestamp(args.t) < timestamp("2030-01-01T00:00:00Z")`, `{"t":"2026-01-01T00:00:00Z"}`, "yes"},
		{`duration(args.d) > duration("1h")`, `{"d":"90m"}`, "yes"},
	}
	for _, tt := range tests {
		t.Run(tt.when, func(t *testing.T) {
			if got := outcome(t, compile(t, when(tt.when)), call(tt.args)); got != tt.want {
				t.Errorf("%s: %s, want %s", tt.args, got, tt.want)
			}
		})
	}
}
