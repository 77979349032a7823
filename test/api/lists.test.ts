import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { noteActivity } from '../../models/activity.ts'
import type { Client, Json } from '../support/client.ts'
import { insertContainers } from '../support/rows.ts'
import { makeOperator, makeTenant } from '../support/tenants.ts'

// The conventions of lists, tested on containers; the other lists use the same declaration.

const path = '/api/v1/containers'
const host_id = newId()
let owner: Client
let tenantId: string
const special: Json = {
  name: 'special',
  status: 'error',
  status_reason: 'The command ended (a+b)* 100%',
  tags: { team: 'blue', 'cost-center': '42' },
  image: 'registry.example.com/team/app:1.2',
  image_digest: 'sha256:abc',
  command: ['run', '--fast'],
  cpu_cores: 0.25,
  memory_mib: 77,
  restart_policy: 'never',
  desired_state: 'running',
  pending_changes: ['command'],
  ports: [{ container_port: 80, protocol: 'tcp', host_port: 31_000 }],
  host_id,
  exit_code: 3,
  restart_count: 5,
  started_at: new Date('2026-02-03T04:05:06.789Z'),
  health: 'healthy',
}

beforeAll(async () => {
  const [mine, other] = [await makeTenant(), await makeTenant()]
  ;({ owner, id: tenantId } = mine)
  const rows = Array.from({ length: 119 }, (_, i) => ({
    name: `row-${String(i).padStart(3, '0')}`,
    memory_mib: 16 + (i % 3),
    created_at: new Date(1_700_000_000_000 + i * 1000),
    updated_at: new Date(1_700_000_000_000 + i * 1000),
  }))
  const at = new Date(1_700_000_500_123)
  await insertContainers(tenantId, [...rows, { ...special, name: 'special', created_at: at, updated_at: at }])
  await insertContainers(other.id, [{ name: 'row-foreign' }, { name: 'special' }])
})

interface Page {
  items: Json[]
  total: number
  next_cursor?: string
}
const list = (query = ''): Promise<Page> => owner.get<Page>(`${path}?${query}`)
const names = async (query: string): Promise<unknown[]> => (await list(query)).items.map(({ name }) => name)

/** Of a row, in the order of creation. */
const at = (index: number) => {
  const time = new Date(1_800_000_000_000 + index * 1000)
  return { created_at: time, updated_at: time }
}

describe('a page', () => {
  test('holds the 20 newest rows by default, with the total of all', async () => {
    const { items, total } = await list()
    expect(total).toBe(120)
    expect(items.map(({ name }) => name)).toEqual([
      'special',
      ...Array.from({ length: 19 }, (_, i) => `row-${118 - i}`),
    ])
  })

  test('holds as many rows as requested: 100 at most, and none for limit=0', async () => {
    expect((await list('limit=3')).items).toHaveLength(3)
    expect((await list('limit=5000')).items).toHaveLength(100)
    expect(await list('limit=0')).toEqual({ items: [], total: 120 })
  })

  test('begins at the offset; past the end it is empty, with the same total', async () => {
    expect(await names('limit=2&offset=1')).toEqual(['row-118', 'row-117'])
    expect(await list('offset=1000')).toEqual({ items: [], total: 120 })
  })

  test('after page gives every row once, oldest first', async () => {
    const walked: unknown[] = []
    for (let offset = 0; offset < 120; offset += 25)
      walked.push(...(await names(`sort_by=created_at&order=asc&limit=25&offset=${offset}`)))
    expect(new Set(walked).size).toBe(120)
    expect([walked[0], walked[119]]).toEqual(['row-000', 'special'])
  })

  test('after page by cursor gives every row once, in each order, also of fields that may be null', async () => {
    for (const sort_by of ['created_at', 'memory_mib', 'exit_code', 'name']) {
      for (const order of ['asc', 'desc']) {
        const whole = await names(`sort_by=${sort_by}&order=${order}&limit=100`)
        const walked: unknown[] = []
        let cursor: string | undefined = ''
        while (cursor !== undefined) {
          const page: Page = await list(
            `sort_by=${sort_by}&order=${order}&limit=7${cursor && `&cursor=${cursor}`}`,
          )
          expect(page.total).toBe(120)
          walked.push(...page.items.map(({ name }) => name))
          cursor = page.next_cursor
        }
        expect([sort_by, order, walked.length, new Set(walked).size]).toEqual([sort_by, order, 120, 120])
        expect(walked.slice(0, 100)).toEqual(whole)
      }
    }
  })

  test('after a cursor begins where the one before ended, whatever was created since', async () => {
    const mine = await makeTenant()
    await insertContainers(
      mine.id,
      [1, 2, 3, 4].map((index) => ({ name: `c-${index}`, ...at(index) })),
    )
    const first = await mine.owner.get<Page>(`${path}?limit=2`)
    await insertContainers(mine.id, [{ name: 'c-5', ...at(5) }])
    const next = `cursor=${first.next_cursor}`
    const second = await mine.owner.get<Page>(`${path}?limit=2&${next}`)
    expect([...first.items, ...second.items].map(({ name }) => name)).toEqual(['c-4', 'c-3', 'c-2', 'c-1'])
    expect(second).not.toHaveProperty('next_cursor')
    const other = await mine.owner.ask('GET', `${path}?${next}&order=asc`)
    expect(other).toMatchObject({ status: 400, body: { errors: [{ pointer: '/cursor' }] } })
    // A cursor of another tenant's list selects among the caller's own things alone.
    expect((await list(`${next}&q=c-`)).items.map(({ tenant_id }) => tenant_id)).not.toContain(mine.id)
  })

  test('never holds another tenant’s row', async () => {
    const { items } = await list('limit=100&q=foreign')
    expect(items).toEqual([])
    const { items: all } = await list('limit=100')
    expect(new Set(all.map(({ tenant_id }) => tenant_id))).toEqual(new Set([tenantId]))
    expect(await list(`tenant_id=${newId()}`)).toEqual({ items: [], total: 0 })
  })
})

describe('a list', () => {
  test.each(['name', 'created_at', 'updated_at', 'memory_mib', 'cpu_cores', 'status', 'id'])(
    'is sorted by %s',
    async (field) => {
      for (const order of ['asc', 'desc'] as const) {
        const { items } = await list(`sort_by=${field}&order=${order}&limit=100`)
        const values = items.map((item) => item[field] as string | number)
        const sorted = values.toSorted((a, b) => (a < b ? -1 : Number(a > b)))
        expect(values).toEqual(order === 'asc' ? sorted : sorted.toReversed())
      }
    },
  )

  test.each(['sort_by=nothing', 'sort_by=tags', 'sort_by=config_vars_sealed', 'order=up'])(
    'refuses %s',
    async (query) => {
      expect(await owner.ask('GET', `${path}?${query}`)).toMatchObject({
        status: 400,
        body: { code: 'invalid_input' },
      })
    },
  )
})

describe('a filter', () => {
  const tags = encodeURIComponent(JSON.stringify(special['tags']))
  test.each([
    ['text', 'name=special'],
    ['one of some values', 'status=error'],
    ['text that may be null', `status_reason=${encodeURIComponent(String(special['status_reason']))}`],
    ['a whole number', 'memory_mib=77'],
    ['a number', 'cpu_cores=0.25'],
    ['a number that may be null', 'exit_code=3'],
    ['a count', 'restart_count=5'],
    ['a time', 'started_at=2026-02-03T04:05:06.789Z'],
    ['the time of creation', `created_at=${new Date(1_700_000_500_123).toISOString()}`],
    ['an id', `host_id=${host_id}`],
    ['a tag', 'tags.team=blue'],
    ['a tag whose name is no path', `tags.cost-center=42`],
    ['several tags, all of which hold', 'tags.team=blue&tags.cost-center=42'],
    ['an object', `tags=${tags}`],
    ['an object in another order', `tags=${encodeURIComponent('{"team":"blue","cost-center":"42"}')}`],
    ['a list', `command=${encodeURIComponent('["run","--fast"]')}`],
    ['a list of names', `pending_changes=${encodeURIComponent('["command"]')}`],
    ['several fields, all of which hold', 'status=error&memory_mib=77&name=special'],
  ])('on %s selects the matching rows', async (_, query) => {
    expect(await names(query)).toEqual(['special'])
  })

  test('on a tag selects nothing by another value, or together with one that does not hold', async () => {
    for (const query of [
      'tags.team=red',
      'tags.team=blu',
      'tags.team=blue&tags.cost-center=43',
      'tags.env=blue',
    ])
      expect(await list(query)).toEqual({ items: [], total: 0 })
    const twice = await owner.ask('GET', `${path}?tags.team=blue&tags.team=red`)
    const errors = [{ pointer: '/tags.team', message: 'is given twice' }]
    expect(twice).toMatchObject({ status: 400, body: { errors } })
    for (const key of ['tags.', 'tags.a b', 'tags.$gt', 'tags.__proto__'])
      expect(await owner.ask('GET', `${path}?${encodeURIComponent(key)}=x`)).toMatchObject({ status: 400 })
  })

  test('on null selects the rows without a value', async () => {
    expect((await list('exit_code=null&limit=0')).total).toBe(119)
    expect((await list('started_at=null&limit=0')).total).toBe(119)
  })

  test('compares exactly: no pattern, no part, no other case', async () => {
    for (const name of ['spec', 'SPECIAL', 'spec.al', '.*', '/special/'])
      expect(await list(`name=${encodeURIComponent(name)}`)).toEqual({ items: [], total: 0 })
  })

  test('is combined with others by AND; total counts all matches', async () => {
    expect(await list('name=special&memory_mib=16')).toEqual({ items: [], total: 0 })
    const { items, total } = await list('memory_mib=17&limit=2')
    expect([items.length, total]).toEqual([2, 40])
  })

  test.each([
    'colour=red',
    'nmae=special',
    'memory_mib=much',
    'memory_mib=1.5',
    'exit_code=',
    'started_at=yesterday',
    'started_at=2026-02-03',
    'host_id=not-an-id',
    'status=sleeping',
    'tags=blue',
    'tags={"a":1}',
    'command=run',
    'limit=-1',
    'limit=many',
    'offset=-1',
    'offset=1.5',
    'limit=1&limit=2',
    'name[$ne]=special',
    'name=a&name=b',
    'cursor=x',
  ])('of ?%s is refused with 400, which says where', async (query) => {
    const answer = await owner.ask('GET', `${path}?${encodeURI(query)}`)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
    const field = /^[\w$]+(\[\$ne\])?/.exec(query)?.[0]
    expect(answer.body['errors']).toEqual([{ pointer: `/${field}`, message: expect.any(String) }])
  })
})

describe('q', () => {
  test.each([
    ['a part of a name', 'spec'],
    ['in any case', 'SPECIAL'],
    ['text of any field', 'registry.example.com'],
    ['text in a list', '--fast'],
    ['a tag’s key and value', 'team'],
    ['a tag’s value', 'blue'],
    ['characters that mean something in a pattern', '(a+b)*'],
    ['a percent sign', '100%'],
  ])('finds %s', async (_, q) => {
    expect(await names(`q=${encodeURIComponent(q)}`)).toEqual(['special'])
  })

  test.each(['.*', 'spec.al', '^special', 'row-\\d', '[a-z]', '(', '\\'])(
    'takes %j literally, as text',
    async (q) => {
      expect(await list(`q=${encodeURIComponent(q)}`)).toMatchObject({ total: q === '(' ? 1 : 0 })
    },
  )

  test('is combined with filters by AND, sorted and paged', async () => {
    expect(await list('q=row-&memory_mib=17&limit=1&sort_by=name&order=asc')).toMatchObject({
      items: [{ name: 'row-001' }],
      total: 40,
    })
  })

  test('refuses a NUL', async () => {
    const answer = await owner.ask('GET', `${path}?q=%00`)
    expect(answer).toMatchObject({ status: 400, body: { errors: [{ pointer: '/q' }] } })
  })

  test('does not search fields that the row does not show', async () => {
    expect(await list('q=config_vars')).toEqual({ items: [], total: 0 })
  })
})

describe('other lists', () => {
  test('operations can be filtered by verb, state and resource', async () => {
    const tenant = await makeTenant()
    const { id } = await tenant.containers.make({ command: ['true'], restart_policy: 'never' })
    const all = { items: [{ resource_id: id, verb: 'create', state: 'succeeded' }], total: 1 }
    for (const query of ['', 'verb=create', 'state=succeeded', `resource_id=${id}`, 'error=null', 'q=create'])
      expect(await tenant.owner.get(`/api/v1/operations?${query}`)).toMatchObject(all)
    expect(await tenant.owner.get('/api/v1/operations?verb=stop')).toMatchObject({ total: 0 })
    expect(await tenant.owner.ask('GET', '/api/v1/operations?state=asleep')).toMatchObject({ status: 400 })
  })

  test('hosts can be filtered by boolean and number', async () => {
    const operator = await makeOperator()
    const hosts = (query: string) => operator.get<Page>(`/api/v1/platform/hosts?${query}`)
    // Other tests insert hosts and remove them. The oldest is the stack's own.
    const { items } = await hosts('order=asc&limit=1')
    expect(items).toHaveLength(1)
    const found: Json[] = []
    for (const cordoned of [false, true]) {
      const page = await hosts(`order=asc&cordoned=${cordoned}`)
      expect(page.items.filter((host) => host['cordoned'] !== cordoned)).toEqual([])
      found.push(...page.items.filter(({ id }) => id === items[0]?.['id']))
    }
    expect(found).toHaveLength(1)
    expect(await operator.ask('GET', '/api/v1/platform/hosts?cordoned=maybe')).toMatchObject({ status: 400 })
  })

  test('activity is sorted newest first, by its own time', async () => {
    const { items } = await list('name=special')
    const resource_id = String(items[0]?.['id'])
    for (const kind of ['first', 'second'])
      await noteActivity({ tenant_id: tenantId, resource_id, kind, message: `the ${kind}`, data: {} })
    const feed = (query: string) => owner.get<Page>(`${path}/${resource_id}/activity?${query}`)
    expect(await feed('')).toMatchObject({ items: [{ kind: 'second' }, { kind: 'first' }], total: 2 })
    expect(await feed('kind=first')).toMatchObject({ items: [{ message: 'the first' }], total: 1 })
    expect(await feed('q=SECOND')).toMatchObject({ items: [{ kind: 'second' }] })
    expect(await owner.ask('GET', `${path}/${resource_id}/activity?resource_id=x`)).toMatchObject({
      status: 400,
    })
  })
})
