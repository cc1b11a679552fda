// Runs inside the package of the suite: see scripts/conformance.
import fetch from 'node-fetch'
import { runTests, getResults } from './client/runner.mjs'
import suites from './tests/index.mjs'

// What the suite expects here, the RFCs no longer say.
const obsolete = new Set([
  ...['nonnumeric', 'negative', 'float', 'prefix-twoline', 'dup-0', 'dup-0-twoline', 'dup-old', 'parameter',
    'numeric-parameter'].map(name => `age-parse-${name}`),
  ...['must-revalidate', 'proxy-revalidate', 'no-cache', 's-maxage=2'].map(name => `stale-close-${name}`),
  ...['Content-Encoding', 'Content-MD5', 'Content-Range', 'ETag'].map(name => `304-etag-update-response-${name}`)
])

const [base, only] = process.argv.slice(2)
const kinds = { required: [0, 0], optimal: [0, 0], check: [0, 0] }
const tests = new Map()
for (const suite of suites) {
  suite.tests = suite.tests.filter(test => only ? test.id === only : !obsolete.has(test.id))
  for (const test of suite.tests) {
    if (only) test.dump = true
    if (!test.browser_only) tests.set(test.id, test)
  }
}

await runTests(suites, fetch, false, base)
const results = getResults()
const failures = []
for (const [id, test] of tests) {
  const kind = test.kind ?? 'required'
  const passed = results[id] === true
  kinds[kind][0] += passed ? 1 : 0
  kinds[kind][1] += 1
  if (!passed) failures.push([kind, id, test.name, (results[id] ?? ['', 'no result']).join(': ')])
}
for (const kind in kinds) console.log(`${kind.padEnd(9)} ${kinds[kind][0]} of ${kinds[kind][1]}`)
for (const kind in kinds) {
  console.log(`\n${kind}, ${kind === 'check' ? 'answered no' : 'failed'}:`)
  for (const [of, id, name, why] of failures) {
    if (of === kind) console.log(`  ${id}\n    ${name}\n    ${why}`)
  }
}
