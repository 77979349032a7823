import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { onlyExpression, partsOf } from '../../lib/ai/templates.ts'
import { seed } from '../support/sampled.ts'

// Texts with expressions in them.

const e = (expression: string) => ({ expression })

describe('a text', () => {
  test.each<[text: string, parts: ReturnType<typeof partsOf>]>([
    ['', ['']],
    ['plain { } $ text', ['plain { } $ text']],
    ['${a}', [e('a')]],
    ['x${a}y${b}', ['x', e('a'), 'y', e('b')]],
    ['${ {"a": {"b": 1}}.a }!', [e(' {"a": {"b": 1}}.a '), '!']],
    ['${"}"}', [e('"}"')]],
    [`\${'it\\'s }' + "\\"}"}`, [e(`'it\\'s }' + "\\"}"`)]],
    ['${"""a "quoted" }"""}', [e('"""a "quoted" }"""')]],
    ['${r"\\}"}', [e('r"\\}"')]],
    ['${a // }\n}', [e('a // }\n')]],
    ['$${a}', ['${a}']],
    ['$$${a}', ['$${a}']],
    ['costs $5 and ${a}', ['costs $5 and ', e('a')]],
    ['${a}$${b}${c}', [e('a'), '${b}', e('c')]],
  ])('%j has its parts', (text, parts) => {
    expect(partsOf(text)).toEqual(parts)
  })

  test.each(['${', 'x${a', '${"a}', "${'''a'}", '${{}', '${a // }'])('%j is refused', (text) => {
    expect(() => partsOf(text)).toThrow(expect.objectContaining({ name: 'TemplateInvalid' }))
  })

  test('is one expression only if there is nothing else', () => {
    expect(onlyExpression(partsOf('${a}'))).toBe('a')
    for (const text of ['', 'a', ' ${a}', '${a}${b}', '$${a}'])
      expect(onlyExpression(partsOf(text))).toBeNull()
  })

  test('can be escaped, whatever it is', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('$', '{', '}', '"', "'", '/', '\\', 'a', '\n')), (characters) => {
        const text = characters.join('')
        // A `$` before an escaped `${` would itself be part of an escape.
        fc.pre(!text.includes('$${'))
        expect(partsOf(text.replaceAll('${', () => '$${'))).toEqual([text])
      }),
      { seed },
    )
  })

  test('of 64 KiB that opens an expression at each character is read once', () => {
    expect(() => partsOf('${'.repeat(32 * 1024))).toThrow('without an end')
    expect(() => partsOf('x'.repeat(64 * 1024 + 1))).toThrow('more than 65536')
    expect(partsOf('${a}'.repeat(16 * 1024))).toHaveLength(16 * 1024)
  })
})
