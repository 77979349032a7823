import { readFileSync } from 'node:fs'
import { describe, expect, test } from '@jest/globals'
import { Validator } from '@seriousme/openapi-schema-validator'
import { allOperations } from '../../api/index.ts'
import { openApiDocument } from '../../api/openapi.ts'
import { tenantPermissions, platformPermissions } from '../../models/identity/roles.ts'

// The declarations: the interface's list of operations, permissions, and the generated document.

const never = (): never => {
  throw new Error('nothing is called here')
}
const operations = allOperations({ cancel: never, apiUrl: 'http://127.0.0.1', workflowUrl: never })
const nameOf = ({ method, path }: { method: string; path: string }): string => `${method} ${path}`
const declared = new Set(operations.map(nameOf))

/** The interface's operations: method, path, section, and whether it is built or comes later. */
const listed = readFileSync(new URL('../spec/operations.tsv', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .slice(1)
  .map((line) => line.split('\t') as [method: string, path: string, section: string, status: string])
  .map(([method, path, section, status]) => ({ method, path, section, status }))

describe('the interface', () => {
  test('has 231 operations, 55 of which are still to come', () => {
    expect(listed).toHaveLength(231)
    expect(listed.filter(({ status }) => status === 'later')).toHaveLength(55)
  })

  test('declares each built operation with its method and path', () => {
    const built = listed.filter(({ status }) => status === 'built')
    expect(built.map(nameOf).filter((name) => !declared.has(name))).toEqual([])
  })

  test('lists no declared operation as to come', () => {
    const later = listed.filter(({ status }) => status === 'later')
    expect(later.map(nameOf).filter((name) => declared.has(name))).toEqual([])
  })

  test('declares no operation twice', () => {
    expect(declared.size).toBe(operations.length)
  })
})

describe.each(operations.map((operation) => ({ name: nameOf(operation), ...operation })))(
  '$name',
  (operation) => {
    const { permission, path, params } = operation

    test('names an existing permission, or says why it needs none', () => {
      if (typeof permission === 'string')
        expect([...tenantPermissions, ...platformPermissions]).toContain(permission)
      else expect(permission.because.split(' ').length).toBeGreaterThan(2)
    })

    test('describes itself and its parameters', () => {
      // It begins with a verb, as a command does: Create, Get, List.
      expect(operation.summary).toMatch(/^(?!An? |The |This )[A-Z][a-z]+[ ,]/)
      const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)
      expect(Object.keys((params as { shape?: object } | undefined)?.shape ?? {})).toEqual(names)
    })
  },
)

describe('the OpenAPI document', () => {
  const document = openApiDocument(operations, 'http://127.0.0.1:7080')
  const paths = document['paths'] as Record<
    string,
    Record<string, { operationId: string; security?: unknown[] }>
  >

  test('is valid OpenAPI 3.1', async () => {
    const validator = new Validator()
    const { valid, errors } = await validator.validate(structuredClone(document))
    expect({ valid, errors }).toEqual({ valid: true, errors: undefined })
    expect(validator.version).toBe('3.1')
    expect(() => validator.resolveRefs()).not.toThrow()
  })

  test('has each operation that clients may call, with a unique id', () => {
    const described = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => nameOf({ method: method.toUpperCase(), path })),
    )
    const forClients = operations.filter(({ path }) => !path.startsWith('/internal/'))
    expect(described).toEqual(expect.arrayContaining(forClients.map(nameOf)))
    const ids = Object.values(paths).flatMap((methods) =>
      Object.values(methods).map(({ operationId }) => operationId),
    )
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('requires authentication except for public operations', () => {
    for (const { method, path, permission } of operations) {
      const described = paths[path]?.[method.toLowerCase()]
      const isOpen = typeof permission === 'object' && permission.for === 'anybody'
      if (described) expect([path, described.security?.length === 0]).toEqual([path, isOpen])
    }
  })
})
