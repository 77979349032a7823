import { globSync, readFileSync } from 'node:fs'
import { describe, expect, test } from '@jest/globals'
import { blocksOf } from '../../script/lib/pages.ts'

// Which test pastes the examples of which page. A page with a new example, or a new page, fails here until a test pastes it.

const root = new URL('../../', import.meta.url)
const read = (path: string): string => readFileSync(new URL(path, root), 'utf8')

/** Pages by name, with the tests that paste their blocks and how many each. */
const pasted: Record<string, Record<string, number>> = {
  README: { 'server/first-use': 2 },
  'docs/ai-workflows': { 'ai/runs': 2 },
  'docs/compose': { 'docs/compose.unit': 3 },
  'docs/connectors': { 'docs/reach': 3 },
  'docs/console': { 'docs/compute': 1 },
  'docs/databases': { 'docs/deployed': 12 },
  'docs/deploy-servers': { 'docs/deploy-servers': 12, 'deploy/story': 8, 'deploy/sending-docs': 3 },
  'docs/disks': { 'docs/compute': 1 },
  'docs/events': { 'docs/deployed': 1 },
  'docs/hosts': { 'docs/operators': 2 },
  'docs/identity': { 'docs/people': 3 },
  'docs/load-balancers': { 'network/load-balancer-docs': 4 },
  'docs/logs': { 'docs/compute': 1 },
  'docs/mail': { 'docs/mail': 2 },
  'docs/microvms': { 'docs/compute': 1 },
  'docs/model-gateway': { 'docs/reach': 2 },
  'docs/operators': { 'docs/operators': 6 },
  'docs/private-images': { 'compute/private-images': 2 },
  'docs/retrieval': { 'retrieval/story': 5 },
  'docs/services': { 'docs/deployed': 4 },
  'docs/tools': { 'docs/reach': 2 },
  'docs/users-and-roles': { 'docs/people': 8 },
  'docs/vms': { 'docs/compute': 1 },
  'docs/vpcs': { 'docs/compute': 3 },
}

const pages = [...globSync('*.md', { cwd: root }), ...globSync('docs/*.md', { cwd: root })]
const withBlocks = pages
  .filter((page) => blocksOf(read(page)).length > 0)
  .map((page) => page.replace(/\.md$/, ''))
const sum = (numbers: number[]): number => numbers.reduce((all, one) => all + one, 0)

test('each page with examples for a shell has tests that paste them, and no other is listed', () => {
  expect(Object.keys(pasted).toSorted()).toEqual(withBlocks.toSorted())
})

test.each(withBlocks)('all examples of %s are pasted', (page) => {
  const here = sum(Object.values(pasted[page] ?? {}))
  expect(blocksOf(read(`${page}.md`))).toHaveLength(here)
})

describe.each(Object.entries(pasted))('the tests of %s', (page, files) => {
  test.each(Object.keys(files))('%s reads the page', (file) => {
    const name = page.replace('docs/', '')
    expect(read(`test/${file}.test.ts`)).toMatch(
      page === 'README' ? /README\.md/ : new RegExp(`(pageOf\\('|blocksBelow|blocksOf)[^]*${name}`),
    )
  })
})

test('a command of a page is in a block for a shell, where it is found', () => {
  const loose = pages.flatMap((page) =>
    read(page)
      .replaceAll(/^```[^]*?^```$/gm, '')
      .split('\n')
      .filter((line) => /^ {4}(curl|api|aws|docker|[A-Z_]+=\$\()/.test(line))
      .map((line) => `${page}: ${line.trim()}`),
  )
  expect(loose).toEqual([])
})
